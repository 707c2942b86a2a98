"""C code with files of its own: SQLite and certificates."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import as_error
from democrai_osguard.guard.patches.raw_files import Kind
from democrai_osguard.guard.patches.rows import Replacement
from democrai_osguard.guard.wrappers import plain, plain_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Doors = Mapping[str, Any]
    Make = Callable[[Any], Any]

_FACTORY = 4  # where the class of a connection stands, after its path


def _connection(doors: Doors) -> Make:
    """`sqlite3.Connection`, which opens behind a door, so that it asks before it attaches."""
    token, watching = doors["token"], doors["watching"]

    def make(original: Any) -> Any:
        class Connection(original, metaclass=Kind):  # type: ignore[misc] # a class handed in
            __slots__ = ()

            def __init__(self, database: Any, *args: Any, **kwargs: Any) -> None:
                path = plain(database)
                if token(None) is not None or watching():
                    values, named = _plain_arguments(args, kwargs)
                    opened = doors["open_database"](self, (path, *values), named)
                    if isinstance(opened, BaseException):
                        raise as_error(opened) from None
                    if opened:
                        return
                original.__init__(self, path, *args, **kwargs)

        _inherit(original, Connection)
        return Connection

    return make


def _inherit(original: Any, stand_in: Any) -> None:
    """Have the classes that others made of the original inherit from what stands for it."""
    for kind in type.__subclasses__(original):
        if kind is not stand_in:
            kind.__bases__ = tuple(
                stand_in if base is original else base for base in kind.__bases__
            )


def _plain_arguments(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what follows the path; the factory is known by now, and is no word to SQLite."""
    values = [None if place == _FACTORY else plain_value(each) for place, each in enumerate(args)]
    named = {key: plain_value(value) for key, value in kwargs.items() if key != "factory"}
    return tuple(values), named


def _connect(original: Any) -> Any:
    """Return a `connect` that makes connections of the class above, where none is named."""
    usual = sys.modules["_sqlite3"].Connection

    def connect(database: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) <= _FACTORY:
            kwargs.setdefault("factory", usual)
        return original(plain(database), *args, **kwargs)

    return connect


def _certificates(doors: Doors, keywords: tuple[str, ...]) -> Make:
    def make(original: Any) -> Any:
        def load(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = [*args[: len(keywords)], *(kwargs.get(key) for key in keywords)]
            for path in given:
                answer = None if path is None else doors["check"]("read", plain(path))
                if isinstance(answer, BaseException):
                    raise as_error(answer) from None
            return original(self, *args, **kwargs)

        return load

    return make


def database_patches(doors: Doors) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    cafiles, chain = ("cafile", "capath"), ("certfile", "keyfile")
    return (
        Replacement("_sqlite3", "Connection", _connection(doors), everywhere=True),
        Replacement("_sqlite3", "connect", _connect, everywhere=True),
        Replacement("ssl:SSLContext", "load_verify_locations", _certificates(doors, cafiles)),
        Replacement("ssl:SSLContext", "load_cert_chain", _certificates(doors, chain)),
    )
