"""The units: their syntax, their score, their order, and that they agree with the README."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MOST_EXPOSED = 25  # systemd-analyze counts in tenths
SERVICES = ("democrai-osguard-helper.service", "democrai-osguard-resolver@.service")
SOCKETS = ("democrai-osguard-helper.socket", "democrai-osguard-resolver.socket")


def _settings(text: str, section: str) -> list[tuple[str, str]]:
    body = text.partition(f"[{section}]\n")[2].partition("\n[")[0]
    lines = [line for line in body.splitlines() if line and not line.startswith("#")]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("unit", SERVICES)
def test_a_service_is_hardly_exposed(repo: Path, unit: str) -> None:
    words = ["systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSED}"]
    done = subprocess.run(
        [*words, f"./{unit}"], cwd=repo / "systemd", capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout.decode()[-200:]


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("unit", [*SERVICES, *SOCKETS])
def test_a_unit_has_no_mistake_of_syntax(repo: Path, unit: str) -> None:
    words = ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", f"./{unit}"]
    done = subprocess.run(words, cwd=repo / "systemd", capture_output=True, text=True, check=False)
    assert unit not in done.stderr


@pytest.mark.parametrize("unit", [*SERVICES, *SOCKETS])
@pytest.mark.parametrize("section", ["Service", "Socket"])
def test_settings_stand_in_alphabetical_order(repo: Path, unit: str, section: str) -> None:
    names = [name for name, _ in _settings((repo / "systemd" / unit).read_text(), section)]
    assert names == sorted(names)


def test_a_protection_left_off_has_its_reason(repo: Path) -> None:
    text = (repo / "systemd" / SERVICES[0]).read_text()
    names = {name for name, _ in _settings(text, "Service")}
    for protection in ("PrivateNetwork", "PrivateUsers", "ProtectControlGroups", "ProtectProc"):
        assert protection not in names
        assert re.search(rf"# {protection}= is left off: \w", text)


def test_the_unit_has_the_capabilities_that_the_readme_lists(repo: Path) -> None:
    settings = dict(_settings((repo / "systemd" / SERVICES[0]).read_text(), "Service"))
    listed = re.findall(
        r"^\| `(CAP_\w+)` \|", (repo / "helper/README.md").read_text(), re.MULTILINE
    )
    assert settings["CapabilityBoundingSet"].split() == sorted(listed)


def test_the_socket_is_for_a_group_and_the_resolver_for_root(repo: Path) -> None:
    helper, resolver = (
        dict(_settings((repo / "systemd" / unit).read_text(), "Socket")) for unit in SOCKETS
    )
    assert (helper["SocketMode"], helper["SocketGroup"]) == ("0660", "democrai-osguard")
    assert (resolver["SocketMode"], resolver["SocketUser"]) == ("0600", "root")
