"""Everything that this package raises on purpose, each with a code that stays.

A value that cannot be understood is a ValueError; a refusal is a PermissionError; a failure to
find out is neither. Nothing here decides or formats for a terminal.
"""

from __future__ import annotations

from typing import Any, ClassVar

# What OSError and ImportError keep where no dictionary shows it.
_KEPT_IN_C = ("errno", "strerror", "filename", "filename2", "name", "path")


class OsGuardError(Exception):
    """Base of every error that this package raises on purpose."""

    code: ClassVar[str] = "osguard_error"

    def __reduce__(self) -> tuple[Any, ...]:
        """Let pickle and copy make the same error again, from what it has become.

        A class here takes other words than those that it says, so it is not called again.
        """
        kept = {name: getattr(self, name, None) for name in _KEPT_IN_C}
        known = {name: value for name, value in kept.items() if value is not None}
        return _again, (type(self), self.args), vars(self) | known


def _again(kind: type[OsGuardError], args: tuple[Any, ...]) -> OsGuardError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class ContractError(OsGuardError, ValueError):
    """A word that the access contract does not know: a type, an operation, a subject."""

    code = "invalid_contract_value"


class TargetError(OsGuardError, ValueError):
    """A target that cannot be normalised. It names the value and the reason."""

    code = "invalid_target"

    def __init__(self, value: object, reason: str) -> None:
        self.value = value
        self.reason = reason
        super().__init__(f"{self.code}: {shown(without_user(value))}: {reason}")


class NetworkTargetMissing(TargetError):
    """A network target that is empty."""

    code = "network_target_missing"


class UnsafePath(TargetError):
    """A path that cannot be resolved safely. Deciding about it ends in a denial."""

    code = "unsafe_path"


class ManifestError(OsGuardError, ValueError):
    """A manifest that does not hold together. `problems` has one line for each place."""

    code = "invalid_manifest"

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class ProfileError(OsGuardError, ValueError):
    """A profile that cannot be read, such as one with an invalid glob."""

    code = "invalid_profile"


_SHOWN_LENGTH = 200
_USER_LEFT_OUT = "***"


def without_user(value: object) -> object:
    """Return a URL without what it says before the '@', where people put passwords."""
    if type(value) is not str or "://" not in value:
        return value
    scheme, _, rest = value.partition("://")
    user, at, host = rest.rpartition("@")
    named = at and ("/" not in user or ":" in user)  # else the '@' may be one of the path
    return f"{scheme}://{_USER_LEFT_OUT}@{host}" if named else value


def shown(value: object) -> str:
    """Return a value as it may stand in a message: quoted, escaped, and not endless."""
    text = ascii(value) if isinstance(value, (str, bytes)) else repr(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}… ({len(text)} long)"


def place(at: str, key: object) -> str:
    """Return where a key stands, such as `access[2].extra`; what is no word is quoted."""
    word = isinstance(key, str) and key.isidentifier()
    name = shown(key).strip("'") if word else shown(key)
    return f"{at}.{name}" if at else name


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return how many there are, as a sentence has it: 1 rule, 2 rules."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def printable(text: str) -> str:
    """Return one line that cannot steer or forge what a person reads.

    Line breaks, control characters, and those that turn the direction of writing are escaped.
    """
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
