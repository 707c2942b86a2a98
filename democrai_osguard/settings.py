"""Settings of the operating system's layers: one TOML or YAML file, and environment overrides.

The file is the one that `DEMOCRAI_CONFIG` names, else the first that is there of `DEFAULT_FILES`.
No other variable leads to it, since guarded code may change those. What is not understood is an
error that names its place: a setting that silently means its default could open something.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from democrai_osguard.errors import OsGuardError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG_VARIABLE = "DEMOCRAI_CONFIG"
DEFAULT_FILES = (
    "/etc/democrai/osguard.toml",
    "/etc/democrai/osguard.yaml",
    "/etc/democrai/osguard.yml",
)
LEVELS = ("full", "partial", "none")
SIZE_LIMIT = 1024 * 1024  # bytes of a file
_PREFIX = "DEMOCRAI_SANDBOX_"
_TRUTHS = {"1": True, "true": True, "yes": True, "on": True}
_FALSEHOODS = {"0": False, "false": False, "no": False, "off": False}
_YAML_ENDINGS = (".yaml", ".yml")


class SettingsError(OsGuardError, ValueError):
    """Settings that do not hold together. `problems` has one line for each place."""

    code = "invalid_settings"

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True, slots=True)
class OsSettings:
    """How far the operating system holds child processes."""

    enabled: bool = True  # `sdk.tasks.run_subprocess` goes through the launcher
    helper_socket: str | None = None  # None means where the helper listens by default
    refresh_seconds: float = 60.0  # how old an address of a name may get
    landlock: bool = True
    extra_read_paths: tuple[str, ...] = ()
    extra_write_paths: tuple[str, ...] = ()
    seccomp: bool = True
    require: str = "none"  # below this level a child is not started

    def changed(self) -> dict[str, Any]:
        """Return what is not as it is by default, by its place in the file."""
        usual = OsSettings()
        return {
            place: getattr(self, name)
            for place, (name, _) in _SETTINGS.items()
            if getattr(self, name) != getattr(usual, name)
        }


@dataclass(frozen=True, slots=True)
class InForce:
    """The settings that hold, and who says so."""

    settings: OsSettings
    file: str | None
    variables: tuple[str, ...]


def load_settings(
    path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> OsSettings:
    """Return the settings; raise SettingsError with one line for each place that is wrong."""
    return in_force(path, environ).settings


def in_force(
    path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> InForce:
    """Return the settings with where they were found; raise SettingsError likewise."""
    variables = os.environ if environ is None else environ
    place = path or variables.get(CONFIG_VARIABLE) or _default_file()
    file = None if place is None else os.fspath(place)
    values, problems = ({}, []) if file is None else _from_file(file)
    overrides, more = _from_variables(variables)
    if problems or more:
        raise SettingsError((*problems, *more))
    said = tuple(sorted({*_VARIABLES, *_OTHER_NAMES}.intersection(variables)))
    return InForce(OsSettings(**(values | overrides)), file, said)


def _default_file() -> str | None:
    return next(filter(os.path.exists, DEFAULT_FILES), None)


def _from_file(path: str) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    problems: list[str] = []
    for place, value in _leaves(_document(path), "", problems):
        _take(place, f"{path}: {place}", value, values, problems)
    return values, [line if line.startswith(path) else f"{path}: {line}" for line in problems]


def _from_variables(environ: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    problems: list[str] = []
    for variable in sorted(environ):
        place = _VARIABLES.get(variable) or _OTHER_NAMES.get(variable)
        if place is not None:
            _take(place, variable, _typed(place, environ[variable]), values, problems)
        elif variable.startswith(_PREFIX):
            problems.append(f"{variable}: no such setting ({', '.join(_VARIABLES)})")
    return values, [*problems, *_contradictions(environ)]


def _contradictions(environ: Mapping[str, str]) -> Iterator[str]:
    for other, place in _OTHER_NAMES.items():
        name = next(each for each, known in _VARIABLES.items() if known == place)
        if other in environ and environ.get(name, environ[other]) != environ[other]:
            said = shown(environ[other])
            yield f"{other}: {said} is not what {name} says; set one of the two"


def _take(
    place: str, shown_place: str, value: object, values: dict[str, Any], problems: list[str]
) -> None:
    name, read = _SETTINGS[place]
    try:
        values[name] = read(value)
    except ValueError as error:
        problems.append(f"{shown_place}: {error}")


def _document(path: str) -> object:
    try:
        with open(path, "rb") as file:
            raw = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise SettingsError((f"{path}: {error.strerror}",)) from error
    if len(raw) > SIZE_LIMIT:
        raise SettingsError((f"{path}: larger than {SIZE_LIMIT} bytes",))
    try:
        text = raw.decode()
        return _yaml(path, text) if path.endswith(_YAML_ENDINGS) else _toml(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError((f"{path}: {str(error).splitlines()[0]}",)) from error


def _toml(text: str) -> object:
    import tomllib  # noqa: PLC0415 - only where there is a file

    return tomllib.loads(text)


def _yaml(path: str, text: str) -> object:
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        words = "YAML needs PyYAML: pip install 'democrai-osguard[yaml]', or write TOML"
        raise SettingsError((f"{path}: {words}",)) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise SettingsError((f"{path}: not YAML: {where}",)) from error


def _leaves(document: object, at: str, problems: list[str]) -> Iterator[tuple[str, object]]:
    """Yield each setting of a document with its dotted place; note what is none."""
    if document is None and not at:
        return  # an empty YAML file
    if not isinstance(document, Mapping):
        problems.append(f"{at or 'the file'}: expected a table")
        return
    for key, value in document.items():
        place = f"{at}.{key}" if at else str(key)
        if place in _SETTINGS:
            yield place, value
        elif any(known.startswith(f"{place}.") for known in _SETTINGS):
            yield from _leaves(value, place, problems)
        else:
            problems.append(f"{place}: no such setting ({', '.join(_SETTINGS)})")


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, not {shown(value)}")  # noqa: TRY004 - a value
    return value


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:  # noqa: PLR2004 - some thirty years
        raise ValueError(f"expected a number of seconds above 0, not {shown(value)}")
    return float(value)


def _path(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise ValueError(f"expected an absolute path, not {shown(value)}")
    return value


def _paths(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list of paths, not {shown(value)}")  # noqa: TRY004 - a value
    return tuple(map(_path, value))


def _level(value: object) -> str:
    if value not in LEVELS:
        raise ValueError(f"{shown(value)} is none of {', '.join(LEVELS)}")
    return str(value)


# Each setting: its place in the file, the field that it fills, and how it is read.
_SETTINGS: dict[str, tuple[str, Callable[[object], Any]]] = {
    "sandbox.os.enabled": ("enabled", _truth),
    "sandbox.os.helper_socket": ("helper_socket", _path),
    "sandbox.os.refresh_seconds": ("refresh_seconds", _seconds),
    "sandbox.os.landlock.enabled": ("landlock", _truth),
    "sandbox.os.landlock.extra_read_paths": ("extra_read_paths", _paths),
    "sandbox.os.landlock.extra_write_paths": ("extra_write_paths", _paths),
    "sandbox.os.seccomp.enabled": ("seccomp", _truth),
    "sandbox.os.require": ("require", _level),
}
_VARIABLES = {
    # Every program knows this one already.
    "DEMOCRAI_OS_HELPER_SOCKET" if place.endswith("helper_socket")
    else f"DEMOCRAI_{place.replace('.', '_').upper()}": place
    for place in _SETTINGS
}  # fmt: skip
_OTHER_NAMES = {"DEMOCRAI_SANDBOX_OS_HELPER_SOCKET": "sandbox.os.helper_socket"}


def _typed(place: str, text: str) -> object:
    """Return a variable's text as the value that a file would have; what is none stays text."""
    read = _SETTINGS[place][1]
    if read is _truth:
        return (_TRUTHS | _FALSEHOODS).get(text.strip().lower(), text)
    if read is _paths:
        return [part for part in text.split(":") if part]
    if read is _seconds:
        try:
            return float(text)
        except ValueError:
            return text
    return text
