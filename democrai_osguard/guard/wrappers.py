"""What stands in the place of the originals: thin functions in front of the doors.

They turn arguments into plain text and numbers before a door sees them, so that no method of a
caller's object ever runs inside, and turn a door's answer into a value or an exception.
"""

from __future__ import annotations

import os
from operator import index
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import Callers, as_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.guard.patches.rows import Call

_fspath = os.fspath
_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
_WHETHER = frozenset({"follow_symlinks", "effective_ids", "target_is_directory"})


def plain(path: Any) -> Any:
    """Return a path as exactly text, bytes or a number: nothing that has methods of its own."""
    kind = path.__class__
    if kind is str or kind is bytes or path is None:
        return path
    if isinstance(path, int):
        return index(path) + 0
    path = _fspath(path)
    if path.__class__ is str:
        return path
    # Joining copies a subclass without calling any method of it.
    return "".join((path,)) if isinstance(path, str) else b"".join((path,))  # noqa: FLY002 - joining calls no method of a subclass


def plain_value(value: Any) -> Any:
    """Return any other argument as exact values: what it has to say is said before it is judged."""
    if value.__class__ in _PLAIN:
        return value
    if isinstance(value, (tuple, list)):
        return tuple(map(plain_value, value))
    if isinstance(value, float):
        return float.__pos__(value)
    if hasattr(value, "__index__"):
        return index(value) + 0
    if isinstance(value, (str, os.PathLike)):
        return plain(value)
    return bytes(memoryview(value))


def plain_named(named: dict[str, Any]) -> dict[str, Any]:
    """Return arguments by name likewise; some only say whether."""
    return {
        key: bool(value) if key in _WHETHER else plain_value(value) for key, value in named.items()
    }


def stat_wrapper(quick: Any, door: Any) -> Callable[..., Any]:
    """Return what stands for `os.stat`."""
    usual = os.stat_result

    def stat(path: Any, *, dir_fd: Any = None, follow_symlinks: bool = True) -> Any:
        if path.__class__ is not str:
            path = plain(path)
        if dir_fd is None and follow_symlinks is True:
            answer = quick(path)
        else:
            library = dir_fd is not None and Callers.is_library()
            answer = door(path, plain_value(dir_fd), bool(follow_symlinks), library)
        if answer.__class__ is usual:
            return answer
        raise as_error(answer) from None

    return stat


def lstat_wrapper(quick: Any, door: Any) -> Callable[..., Any]:
    """Return what stands for `os.lstat`."""
    usual = os.stat_result

    def lstat(path: Any, *, dir_fd: Any = None) -> Any:
        if path.__class__ is not str:
            path = plain(path)
        answer = (
            quick(path)
            if dir_fd is None
            else door(path, plain_value(dir_fd), False, Callers.is_library())  # noqa: FBT003 - a door takes its arguments by position
        )
        if answer.__class__ is usual:
            return answer
        raise as_error(answer) from None

    return lstat


def open_wrapper(original: Any, door: Any, token: Any, watching: Any) -> Callable[..., Any]:
    """Return what stands for the builtin `open`.

    The original is no secret here: the hook judges it too, as it judges every other C opener.
    """

    def open(  # noqa: A001, PLR0913, PLR0917 - the builtin's own name
        file: Any,
        mode: Any = "r",
        buffering: Any = -1,
        encoding: Any = None,
        errors: Any = None,
        newline: Any = None,
        closefd: Any = True,  # noqa: FBT002 - as the original has it
        opener: Any = None,
    ) -> Any:
        if token(None) is None and not watching():
            return original(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if file.__class__ is not str:
            file = plain(file)
        if mode.__class__ is not str or buffering.__class__ is not int:
            mode, buffering = plain_value(mode), index(buffering) + 0
        if encoding is not None and encoding.__class__ is not str:
            encoding = plain_value(encoding)
        if errors is not None or newline is not None:
            errors, newline = plain_value((errors, newline))
        rest = (buffering, encoding, errors, newline)
        answer = door(file, mode, rest, closefd is True or bool(closefd), opener)
        if isinstance(answer, BaseException):
            raise as_error(answer) from None
        return answer

    return open


def os_open_wrapper(original: Any, doors: Any) -> Callable[..., Any]:
    """Return what stands for `os.open`; see `open_wrapper`."""
    quick, door, token, watching = (
        doors[name] for name in ("quick_open", "os_open", "token", "watching")
    )

    def open(path: Any, flags: Any, mode: Any = 0o777, *, dir_fd: Any = None) -> Any:  # noqa: A001 - the builtin's own name
        if dir_fd is None:
            answer = quick(path, flags, mode)
            if answer.__class__ is int:
                return answer
        else:
            answer = None
        if answer is None:
            if token(None) is None and not watching():
                return original(path, flags, mode, dir_fd=dir_fd)
            library = dir_fd is not None and Callers.is_library()
            answer = door(
                plain(path), index(flags) + 0, index(mode) + 0, plain_value(dir_fd), library
            )
            if answer.__class__ is int:
                return answer
        raise as_error(answer) from None

    return open


def access_wrapper(door: Any) -> Callable[..., Any]:
    """Return what stands for `os.access`."""

    def access(path: Any, mode: Any, **named: Any) -> Any:
        relative = named.get("dir_fd") is not None
        library = relative and Callers.is_library()
        answer = door(plain(path), index(mode) + 0, plain_named(named), library)
        if isinstance(answer, BaseException):
            raise as_error(answer) from None
        return answer

    return access


def call_wrapper(row: Call, door: Any) -> Callable[..., Any]:
    """Return what stands for a function of the table."""
    name = row.name

    def call(*args: Any, **kwargs: Any) -> Any:
        values = [value if value.__class__ in _PLAIN else plain_value(value) for value in args]
        if kwargs:
            kwargs = plain_named(kwargs)
        library = any(key.endswith("dir_fd") for key in kwargs) and Callers.is_library()
        answer = door(name, values, kwargs, library)
        if isinstance(answer, BaseException):
            raise as_error(answer) from None
        return answer

    call.__name__ = call.__qualname__ = name
    return call


def probe_wrapper(
    quick: Any, kind: Callable[[Any], int | None], test: Callable[[int], bool] | None
) -> Callable[..., bool]:
    """Return a probe that raises a refusal to guarded code; a library's probe is answered False.

    Unless something may be made there: what a library then takes for missing it would try to make.
    `quick` is the door that looks, `kind` the one that says what making would tell, `test` what the
    file must be; None asks nothing.
    """
    usual = os.stat_result

    def probe(path: Any) -> bool:
        try:
            answer = quick(path if path.__class__ is str else plain(path))
        except (OSError, ValueError):  # without a guard they are raised
            return False
        if answer.__class__ is usual:
            return test is None or test(answer.st_mode)
        if isinstance(answer, (OSError, ValueError)):
            return False
        if type(answer) is Warning and Callers.is_library():
            found = kind(plain(path))
            return found is not None and (test is None or test(found))
        raise as_error(answer) from None

    return probe


def silent_maker(doors: Any, name: str) -> Callable[[Any], Any]:
    """Return a maker of functions that are judged, and done, behind a door."""
    act = doors["silent"]

    def make(original: Any) -> Any:
        doors["keep_silent"](name, original)

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = act(name, tuple(map(plain_value, args)), plain_named(kwargs))
            if isinstance(answer, BaseException):
                raise as_error(answer) from None
            return answer

        return call

    return make


def realpath_wrapper(original: Callable[..., Any], door: Any) -> Callable[..., Any]:
    """Return a `realpath` that says where allowed paths lead, and of others only what they say."""
    lenient = getattr(os.path, "ALLOW_MISSING", False)  # from 3.14 on, and in later fixes of others

    def realpath(filename: Any, *, strict: Any = False) -> Any:
        path = plain(filename)
        place = door(path)
        if place is None:
            return original(path, strict=strict)
        if strict is lenient:
            strict = False  # what is closed is as good as missing
        if place is False:
            if strict:
                os.lstat(path)
            place = os.path.abspath(path)
        elif strict:
            os.lstat(place)
        return os.fsencode(place) if isinstance(path, bytes) and isinstance(place, str) else place

    return realpath
