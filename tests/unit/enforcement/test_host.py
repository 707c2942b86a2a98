"""What `status` says of a host, from texts that hosts print."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from command_line import osguard

from democrai_osguard.cli.helper import helper
from democrai_osguard.enforcement import host
from democrai_osguard.enforcement.cgroups import CgroupLayout, cgroup_layout
from democrai_osguard.enforcement.host import iptables_backend
from democrai_osguard.enforcement.landlock_words import landlock_words

if TYPE_CHECKING:
    from pathlib import Path

V1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
V2 = "41 31 0:38 / {} rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
OTHER = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"


@pytest.mark.parametrize(
    ("mountinfo", "layout"),
    [
        (V2.format("/sys/fs/cgroup"), CgroupLayout("v2", "/sys/fs/cgroup")),
        (OTHER + V1 + V2.format("/sys/fs/cgroup/unified"),
         CgroupLayout("hybrid", "/sys/fs/cgroup/unified")),
        (OTHER + V1, CgroupLayout("v1", None)),
        (OTHER, CgroupLayout("none", None)),
        ("", CgroupLayout("none", None)),
        (V2.format(r"/mnt/a\040b"), CgroupLayout("v2", "/mnt/a b")),
    ],
)  # fmt: skip
def test_the_cgroup_layout_is_read_from_mountinfo(mountinfo: str, layout: CgroupLayout) -> None:
    assert cgroup_layout(mountinfo) == layout


@pytest.mark.parametrize(
    ("version", "backend"),
    [
        ("iptables v1.8.9 (nf_tables)\n", "nf_tables"),
        ("iptables v1.8.9 (legacy)\n", "legacy"),
        ("iptables v1.6.1\n", "legacy"),
        ("something else\n", "unknown"),
    ],
)
def test_the_iptables_backend_is_read_from_its_version(version: str, backend: str) -> None:
    assert iptables_backend(version) == backend


def test_landlock_words_say_what_is_held_and_what_is_not() -> None:
    assert "refuses to start" in landlock_words(0)
    assert "truncation (ABI 3)" in landlock_words(2).partition("does not hold")[2]
    assert "truncation" in landlock_words(3).partition("does not hold")[0]
    assert "does not hold" not in landlock_words(10)
    assert landlock_words(11) == landlock_words(10)


def test_status_tells_every_fact_in_words_and_in_json() -> None:
    words = osguard("status")
    assert words.returncode == 0, words.stderr
    for start in (
        "Linux ",
        "Landlock: ",
        "seccomp: ",
        "cgroups: ",
        "iptables: ",
        "helper: ",
        "settings: ",
    ):
        assert any(line.startswith(start) for line in words.stdout.splitlines())
    facts = json.loads(osguard("status", "--json").stdout)
    names = {"system", "landlock", "seccomp", "cgroup", "iptables", "helper", "settings", "running"}
    assert set(facts) == names


def test_status_says_that_there_is_no_helper(tmp_path: Path) -> None:
    path = str(tmp_path / "helper.sock")
    closed = osguard("status", "--json", DEMOCRAI_OS_HELPER_SOCKET=path)
    assert json.loads(closed.stdout)["helper"] == {"socket": path, "reachable": False}


def test_a_socket_where_nobody_answers_is_not_a_helper_that_can_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service manager takes connections for a helper that does not run."""
    path = str(tmp_path / "helper.sock")
    monkeypatch.setattr(host, "HELPER_PATIENCE", 0.1)
    monkeypatch.setattr("democrai_osguard.cli.helper.HELPER_PATIENCE", 0.1)
    monkeypatch.setenv("DEMOCRAI_OS_HELPER_SOCKET", path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        (fact,) = (fact for fact in host.host_facts() if fact.name == "helper")
        told = CliRunner().invoke(helper, ["status"], standalone_mode=False)
    assert fact.value == {"socket": path, "reachable": False}
    line = f"the socket is there at {path}, and nobody answers"
    assert fact.words == f"helper: {line} (no answer in time)"
    assert f"T{line[1:]}: no answer in time" in told.output
    assert told.return_value == 125


def test_a_kernel_that_cannot_be_asked_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_PATIENCE", 0.0)
    with pytest.raises(host.HostUnknown, match="host_unknown: the kernel's report failed"):
        host.host_facts()
