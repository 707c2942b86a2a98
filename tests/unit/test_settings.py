"""Settings are read strictly: each error names its place, and nothing unknown passes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from democrai_osguard.settings import OsSettings, SettingsError, load_settings

if TYPE_CHECKING:
    from pathlib import Path

TOML = """
[sandbox.os]
enabled = false
helper_socket = "/run/own.sock"
refresh_seconds = 5
require = "full"
[sandbox.os.landlock]
enabled = false
extra_read_paths = ["/srv/models"]
extra_write_paths = ["/srv/out"]
[sandbox.os.seccomp]
enabled = false
"""
YAML = """
sandbox:
  os:
    enabled: false
    helper_socket: /run/own.sock
    refresh_seconds: 5
    require: full
    landlock: {enabled: false, extra_read_paths: [/srv/models], extra_write_paths: [/srv/out]}
    seccomp: {enabled: false}
"""
ALL = OsSettings(
    enabled=False, helper_socket="/run/own.sock", refresh_seconds=5.0, landlock=False,
    extra_read_paths=("/srv/models",), extra_write_paths=("/srv/out",), seccomp=False,
    require="full",
)  # fmt: skip


def written(tmp_path: Path, text: str, name: str = "c.toml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def problems(path: Path | None, environ: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_settings(path, environ or {})
    assert caught.value.code == "invalid_settings"
    return caught.value.problems


def test_without_a_file_the_defaults_hold() -> None:
    assert load_settings(environ={}) == OsSettings()
    assert OsSettings().refresh_seconds == 60
    assert OsSettings().enabled


@pytest.mark.parametrize(("name", "text"), [("c.toml", TOML), ("c.yaml", YAML), ("c.yml", YAML)])
def test_every_setting_can_stand_in_a_file(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path, text, name)
    assert load_settings(path, {}) == ALL
    assert load_settings(environ={"DEMOCRAI_CONFIG": str(path)}) == ALL


@pytest.mark.parametrize(("name", "text"), [("c.toml", ""), ("c.yaml", "# nothing\n")])
def test_an_empty_file_changes_nothing(tmp_path: Path, name: str, text: str) -> None:
    assert load_settings(written(tmp_path, text, name), {}) == OsSettings()


def test_the_helpers_socket_goes_by_the_name_of_the_other_settings_as_well() -> None:
    own, short = "DEMOCRAI_SANDBOX_OS_HELPER_SOCKET", "DEMOCRAI_OS_HELPER_SOCKET"
    for environ in ({own: "/run/own.sock"}, {own: "/run/own.sock", short: "/run/own.sock"}):
        assert load_settings(environ=environ).helper_socket == "/run/own.sock"
    assert problems(None, {own: "/run/own.sock", short: "/run/other.sock"}) == (
        f"{own}: '/run/own.sock' is not what {short} says; set one of the two",
    )
    (line,) = problems(None, {own: "own.sock"})
    assert line.startswith(f"{own}: expected an absolute path")


def test_every_setting_can_stand_in_the_environment_which_wins(tmp_path: Path) -> None:
    environ = {
        "DEMOCRAI_SANDBOX_OS_ENABLED": "no",
        "DEMOCRAI_OS_HELPER_SOCKET": "/run/own.sock",
        "DEMOCRAI_SANDBOX_OS_REFRESH_SECONDS": "5",
        "DEMOCRAI_SANDBOX_OS_LANDLOCK_ENABLED": "0",
        "DEMOCRAI_SANDBOX_OS_LANDLOCK_EXTRA_READ_PATHS": "/srv/models",
        "DEMOCRAI_SANDBOX_OS_LANDLOCK_EXTRA_WRITE_PATHS": "/srv/out:",
        "DEMOCRAI_SANDBOX_OS_SECCOMP_ENABLED": "False",
        "DEMOCRAI_SANDBOX_OS_REQUIRE": "full",
    }
    assert load_settings(environ=environ) == ALL
    path = written(tmp_path, TOML)
    changed = load_settings(path, {"DEMOCRAI_SANDBOX_OS_REQUIRE": "partial"})
    assert changed.require == "partial"
    assert changed.helper_socket == "/run/own.sock"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[sandbox.os]\nenabeld = true", "sandbox.os.enabeld: no such setting"),
        ("[sandbox]\nnetwork = 1", "sandbox.network: no such setting"),
        ("other = 1", "other: no such setting"),
        ("sandbox = 1", "sandbox: expected a table"),
        ("[sandbox]\nos = []", "sandbox.os: expected a table"),
        ("[sandbox.os]\nenabled = 'yes'", "sandbox.os.enabled: expected true or false"),
        ("[sandbox.os]\nenabled = 1", "sandbox.os.enabled: expected true or false"),
        ("[sandbox.os]\nrequire = 'most'", "sandbox.os.require: 'most' is none of full, partial"),
        ("[sandbox.os]\nrefresh_seconds = 0", "sandbox.os.refresh_seconds: expected a number"),
        ("[sandbox.os]\nrefresh_seconds = nan", "sandbox.os.refresh_seconds: expected a number"),
        ("[sandbox.os]\nrefresh_seconds = true", "sandbox.os.refresh_seconds: expected a number"),
        ("[sandbox.os]\nhelper_socket = 'own.sock'", "sandbox.os.helper_socket: expected an abs"),
        ("[sandbox.os.landlock]\nextra_read_paths = '/srv'", "extra_read_paths: expected a list"),
        ("[sandbox.os.landlock]\nextra_write_paths = ['srv']", "extra_write_paths: expected an"),
        ("[sandbox.os", "c.toml: "),
        ("a = 1\na = 2", "c.toml: "),
        ("a = '\udcff'", "c.toml: "),
    ],
)
def test_an_error_names_its_place(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    (line,) = problems(path)
    assert line.startswith(str(path))
    assert place in line


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, "[sandbox.os]\nenabled = 3\nrequire = 4\n[more]\nx = 1")
    lines = problems(path, {"DEMOCRAI_SANDBOX_OS_ENABLED": "perhaps", "DEMOCRAI_SANDBOX_X": "1"})
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DEMOCRAI_SANDBOX_OS_ENABLED", "perhaps"),
        ("DEMOCRAI_SANDBOX_OS_REFRESH_SECONDS", "soon"),
        ("DEMOCRAI_SANDBOX_OS_REQUIRE", ""),
        ("DEMOCRAI_SANDBOX_OS_LANDLOCK_EXTRA_READ_PATHS", "relative"),
        ("DEMOCRAI_SANDBOX_OS_LANDLOK_ENABLED", "true"),
    ],
)
def test_a_variable_that_is_not_understood_is_an_error(variable: str, value: str) -> None:
    (line,) = problems(None, {variable: value})
    assert line.startswith(variable)


def test_a_file_that_is_named_and_missing_is_an_error(tmp_path: Path) -> None:
    (line,) = problems(None, {"DEMOCRAI_CONFIG": f"{tmp_path}/none.toml"})
    assert line.endswith("none.toml: No such file or directory")


def test_yaml_that_is_none_is_an_error(tmp_path: Path) -> None:
    (line,) = problems(written(tmp_path, "a: [", "c.yaml"))
    assert "not YAML" in line
    assert "\n" not in line


def test_yaml_without_pyyaml_says_what_to_do(tmp_path: Path) -> None:
    path = written(tmp_path, YAML, "c.yaml")
    script = (
        "import sys; sys.modules['yaml'] = None\n"
        "from democrai_osguard.settings import load_settings, SettingsError\n"
        f"try: load_settings({str(path)!r}, {{}})\n"
        "except SettingsError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "YAML needs PyYAML" in done.stdout
    assert "TOML" in done.stdout


def test_variables_that_guarded_code_may_change_lead_to_no_file(tmp_path: Path) -> None:
    (tmp_path / "democrai").mkdir()
    written(tmp_path / "democrai", TOML, "osguard.toml")
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    assert load_settings(environ=environ) == OsSettings()
