"""For tests that need root: what they need of the host, a network and cgroups of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from host_features import PROBES
from root import lab
from root.daemons import Daemon, eventually

from democrai_osguard_helper.cgroups import NoCgroups, Tree, find_mount

if TYPE_CHECKING:
    from collections.abc import Iterator


def _has_cgroup2() -> bool:
    with contextlib.suppress(NoCgroups):
        return os.access(find_mount(), os.W_OK)
    return False


def _has_bpf() -> bool:
    from democrai_osguard_helper.bpf_layer import BpfLayer  # noqa: PLC0415 - only as root

    return os.geteuid() == 0 and BpfLayer().reason() == ""


def _in_namespace(*words: str) -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return (
        subprocess.run(["unshare", "-n", *words], capture_output=True, check=False).returncode == 0
    )


PROBES.update(
    {
        "cgroup2": _has_cgroup2,
        "bpf": _has_bpf,
        "netns": lambda: _in_namespace("ip", "link", "set", "lo", "up"),
        "iptables": lambda: _in_namespace(
            *("iptables", "-A", "OUTPUT", "-m", "cgroup", "--path", "/", "-j", "RETURN")
        ),
        "iptables-legacy": lambda: _in_namespace(
            *("iptables-legacy", "-A", "OUTPUT", "-m", "cgroup", "--path", "/", "-j", "RETURN")
        ),
        "ipset": lambda: _in_namespace("ipset", "create", "x", "hash:net,port"),
    }
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.needs("root", "cgroup2", "netns"))


@pytest.fixture
def network() -> Iterator[lab.Listeners]:
    """Live in a fresh network namespace with listeners for the time of the test."""
    with lab.fresh_namespace():
        listeners = lab.Listeners()
        try:
            yield listeners
        finally:
            listeners.close()


@pytest.fixture
def tree() -> Iterator[Tree]:
    """Return a folder of boxes; the test fails if it leaves one behind."""
    own = Tree(find_mount(), f"t{os.getpid() % 1000000}")
    own.create()
    yield own
    left = own.boxes()
    for box in left:
        if box.populated():
            box.kill()
        box.remove()
    own.remove()
    assert not left, "the test left boxes behind"


@pytest.fixture
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    """Return a daemon that is not started yet; the test fails if it leaves something behind."""
    request.getfixturevalue("network")
    made = Daemon(tmp_path, f"d{os.getpid() % 1000000}")
    yield made
    made.stop()
    own = Tree(find_mount(), made.instance)
    left = own.boxes() if os.path.isdir(own.path) else ()
    for box in left:
        if box.populated():
            box.kill()
            eventually(lambda box=box: not box.populated())  # type: ignore[misc]
        box.remove()
    with contextlib.suppress(FileNotFoundError):
        own.remove()
    assert not left, f"the daemon left {len(left)} boxes behind"


@pytest.fixture
def open_folder() -> Iterator[str]:
    """Return a folder that everybody may enter: another run of pytest closes those of this one."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield folder


@pytest.fixture
def running(daemon: Daemon) -> Daemon:
    """Return a helper that answers."""
    daemon.start()
    daemon.wait()
    return daemon
