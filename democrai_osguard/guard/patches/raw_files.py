"""`io.FileIO` and `io.open_code`: they open as `os.open` and `open` do, which look at the object.

The C class itself opens by name. What it opens past this class is refused where names can change;
see `sealed.events`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.wrappers import plain

if TYPE_CHECKING:
    from collections.abc import Callable

_NEW = os.O_WRONLY | os.O_CREAT
_FLAGS = {
    "r": os.O_RDONLY,
    "w": _NEW | os.O_TRUNC,
    "x": _NEW | os.O_EXCL,
    "a": _NEW | os.O_APPEND,
    "r+": os.O_RDWR,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND,
}


class Kind(type):
    """The kind of a class that stands for a C class: instances of that count as its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or (
            cls.__dict__.get("democrai_osguard") is True and isinstance(instance, cls.__mro__[1])
        )


def raw_file_class(original: Any, opened: Callable[..., int], guarded: Callable[[], bool]) -> Any:
    """Return what stands for `io.FileIO`."""

    class FileIO(original, metaclass=Kind):  # type: ignore[misc] # a class that was handed in
        def __init__(
            self,
            file: Any,
            mode: str = "r",
            closefd: Any = True,  # noqa: FBT002 - as the original has it
            opener: Any = None,
        ) -> None:
            name = plain(file)
            flags = _FLAGS.get(mode.replace("b", "")) if mode.__class__ is str else None
            itself = opener is None and bool(closefd) and not isinstance(name, int)
            # What the original does not open, or refuses anyway, it is left to.
            if flags is None or not itself or not guarded():
                original.__init__(self, name, mode, closefd, opener)
                return
            descriptor = opened(name, flags | os.O_CLOEXEC, 0o666)
            try:
                original.__init__(self, descriptor, mode)
            except BaseException:
                os.close(descriptor)
                raise
            self.name = file

    return FileIO


def open_code_wrapper(
    original: Callable[..., Any], opened: Callable[..., Any], guarded: Callable[[], bool]
) -> Callable[..., Any]:
    """Return what stands for `io.open_code`."""

    def open_code(path: Any) -> Any:
        return opened(path, "rb") if isinstance(path, str) and guarded() else original(path)

    return open_code
