"""Making folders with those above them, which need not be readable; copies, moves, archives."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import Callers, as_error
from democrai_osguard.guard.patches.rows import Replacement
from democrai_osguard.guard.wrappers import plain
from democrai_osguard.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _makedirs(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """`os.makedirs`, which would take a folder that it may not see for one that is missing."""
    token, watching = doors["token"], doors["watching"]

    def make(original: Any) -> Any:
        def makedirs(name: Any, mode: Any = 0o777, exist_ok: Any = False, **named: Any) -> None:  # noqa: FBT002 - as the original has it
            if token(None) is None and not watching():
                original(name, mode, exist_ok, **named)
                return
            try:
                os.mkdir(name, mode)
            except FileNotFoundError:  # the folder above is missing indeed
                original(name, mode, exist_ok, **named)
            except OSError:
                if not exist_ok or not os.path.isdir(name):
                    raise

        return makedirs

    return make


def _copy(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """`shutil`'s copies, which give what they made the source's mode and times at the end."""
    copying = doors["copying"]

    def make(original: Any) -> Any:
        def copy(*args: Any, **kwargs: Any) -> Any:
            begins = copying(True)  # noqa: FBT003 - a door takes its arguments by position
            try:
                return original(*args, **kwargs)
            finally:
                if begins:
                    copying(False)  # noqa: FBT003 - as above

        return copy

    return make


def _mkdir(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """`Path.mkdir`, which looks at a folder that is there already; here as `os.makedirs` does."""
    token, watching = doors["token"], doors["watching"]

    def make(original: Any) -> Any:
        def mkdir(
            self: Any,
            mode: Any = 0o777,
            parents: Any = False,  # noqa: FBT002 - as the original has it
            exist_ok: Any = False,  # noqa: FBT002 - as above
        ) -> None:
            guarded = token(None) is not None or watching()
            try:
                original(self, mode, parents, exist_ok and not guarded)
            except OSError:
                if not guarded or not exist_ok or not os.path.isdir(self):
                    raise

        return mkdir

    return make


def _move(original: Any) -> Any:
    """Return a `shutil.move` that is refused as the rename that it is, not as the copy after it."""

    def move(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except Refusal as error:
            raise _first(error) from None

    return move


def _first(error: Refusal) -> Refusal:
    """Return the refusal that another one was met in the handling of."""
    while isinstance(error.__context__, Refusal):
        error = error.__context__
    return error


def _unpack(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """`shutil.unpack_archive`, which takes a file that it may not read for no archive."""

    def make(original: Any) -> Any:
        def unpack_archive(filename: Any, *args: Any, **kwargs: Any) -> Any:
            _check_readable(doors, filename)
            return original(filename, *args, **kwargs)

        return unpack_archive

    return make


def _is_archive(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """`zipfile.is_zipfile`, a probe: guarded code is refused, and a library is answered False."""

    def make(original: Any) -> Any:
        def is_zipfile(filename: Any) -> Any:
            if not hasattr(filename, "read") and not Callers.is_library():
                _check_readable(doors, filename)
            return original(filename)

        return is_zipfile

    return make


def _check_readable(doors: Mapping[str, Any], path: Any) -> None:
    answer = doors["check"]("read", plain(path))
    if isinstance(answer, BaseException):
        raise as_error(answer) from None


def folder_patches(doors: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    copies = ("copy", "copy2", "copytree")
    return (
        Replacement("os", "makedirs", _makedirs(doors), everywhere=True),
        Replacement("pathlib:Path", "mkdir", _mkdir(doors)),
        Replacement("shutil", "move", _move, everywhere=True),
        Replacement("shutil", "unpack_archive", _unpack(doors), everywhere=True),
        Replacement("zipfile", "is_zipfile", _is_archive(doors), everywhere=True),
        *(Replacement("shutil", name, _copy(doors), everywhere=True) for name in copies),
    )
