"""The mapping inside `os.environ`, kept where only its own methods reach it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Self

from democrai_osguard.guard.outcome import as_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class EnvironmentData(MutableMapping[bytes, bytes]):
    """Stands for the dict in `os.environ`, `os.environb` and `posix`; it holds nothing itself."""

    __slots__ = ("_act",)

    def __init__(self, doors: Mapping[str, Any]) -> None:
        self._act = doors["environment"]

    def __getitem__(self, key: bytes) -> bytes:
        value: bytes | None = self._act("get", key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._change("set", key, value)

    def __delitem__(self, key: bytes) -> None:
        if self._act("get", key) is None:
            raise KeyError(key)
        self._change("delete", key)

    def _change(self, verb: str, key: bytes, value: bytes | None = None) -> None:
        answer = self._act(verb, key, value)
        if isinstance(answer, BaseException):
            raise as_error(answer) from None

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._act("list", None))

    def __len__(self) -> int:
        return len(self._act("list", None))

    def __contains__(self, key: object) -> bool:
        return self._act("get", key) is not None

    def get(self, key: bytes, default: Any = None) -> Any:
        """Return a variable as dict does."""
        value = self._act("get", key)
        return default if value is None else value

    def pop(self, key: bytes, *default: Any) -> Any:
        """Remove a variable as dict does; one of the runtime is refused, also where it is not."""
        value = self._act("get", key)
        self._change("delete", key)
        if value is None and not default:
            raise KeyError(key)
        return default[0] if value is None else value

    def __ior__(self, other: Mapping[bytes, bytes]) -> Self:
        self.update(other)
        return self

    def copy(self) -> dict[bytes, bytes]:
        """Return a plain copy."""
        return dict(self.items())
