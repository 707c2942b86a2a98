"""Making folders with those above them, which need not be readable; copying into new files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.patches.rows import Replacement

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


def folder_patches(doors: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    copies = ("copy", "copy2", "copytree")
    return (
        Replacement("os", "makedirs", _makedirs(doors), everywhere=True),
        *(Replacement("shutil", name, _copy(doors), everywhere=True) for name in copies),
    )
