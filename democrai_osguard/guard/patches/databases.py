"""C code with files of its own: SQLite's ATTACH, shared memory, certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import as_error
from democrai_osguard.guard.patches.rows import Replacement
from democrai_osguard.guard.wrappers import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Doors = Mapping[str, Any]
    Make = Callable[[Any], Any]

_SQLITE_ATTACH = 24
_OK, _DENY = 0, 1


def _sqlite_connect(doors: Doors) -> Make:
    """Return a maker of connections that ask before they attach another file."""

    def make(original: Any) -> Any:
        def connect(database: Any, *args: Any, **kwargs: Any) -> Any:
            connection = original(plain(database), *args, **kwargs)
            if doors["carried"]() is not None:
                connection.set_authorizer(_authorizer(doors))
            return connection

        return connect

    return make


def _authorizer(doors: Doors) -> Callable[..., int]:
    def authorize(action: int, name: str | None, *_rest: object) -> int:
        if action != _SQLITE_ATTACH:
            return _OK
        answer = None if name is None else doors["database"](name)
        return _OK if answer is None else _DENY

    return authorize


def _shared_memory(doors: Doors, operation: str) -> Make:
    def make(original: Any) -> Any:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            name = plain(path)
            answer = doors["check"](operation, f"/dev/shm/{str(name).lstrip('/')}")  # noqa: S108 - where the C library keeps it
            if isinstance(answer, BaseException):
                raise as_error(answer) from None
            return original(name, *args, **kwargs)

        return call

    return make


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
        Replacement("_sqlite3", "connect", _sqlite_connect(doors), everywhere=True),
        Replacement("_posixshmem", "shm_open", _shared_memory(doors, "write"), everywhere=True),
        Replacement("_posixshmem", "shm_unlink", _shared_memory(doors, "delete"), everywhere=True),
        Replacement("ssl:SSLContext", "load_verify_locations", _certificates(doors, cafiles)),
        Replacement("ssl:SSLContext", "load_cert_chain", _certificates(doors, chain)),
    )
