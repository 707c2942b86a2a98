"""The daemon with no more rights than its unit gives it."""

from __future__ import annotations

import fcntl
import os
import re
from typing import TYPE_CHECKING

import pytest
from root.daemons import NOBODY, become, resident
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper.cgroups import Tree, find_mount
from democrai_osguard_helper.client import Client
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.protocol import Revoke

if TYPE_CHECKING:
    from pathlib import Path

    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")


def test_the_capabilities_of_the_unit_suffice(daemon: Daemon, repo: Path) -> None:
    unit = (repo / "systemd/democrai-osguard-helper.service").read_text()
    found = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    assert found is not None
    kept = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in found[1].split())
    Tree(find_mount(), daemon.instance).create()  # the unit's first step
    daemon.prefix = ("setpriv", "--bounding-set", f"-all,{kept}", "--inh-caps", "-all")
    daemon.start()
    daemon.wait()
    one = Endpoint(parse_network(ALLOWED[4]), PORT)
    with Client(daemon.socket) as client:
        assert [state.reason for state in client.status().layers] == ["", ""]
        with resident(daemon.socket, (one,)) as child:
            assert child.does("hold", ALLOWED[4], PORT) == "allowed"
            assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
            assert client.revoke(Revoke(child.sandbox, (one,), ())).destroyed == 1
            daemon.kill()
            daemon.start()
            daemon.wait()
            assert child.does("tcp", ALLOWED[4], PORT) == "Operation not permitted"


def test_without_any_capability_no_layer_works_and_each_says_why(daemon: Daemon) -> None:
    Tree(find_mount(), daemon.instance).create()
    daemon.prefix = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
    daemon.start()
    daemon.wait()
    with Client(daemon.socket) as client:
        reasons = [state.reason for state in client.status().layers]
    assert reasons[0] == "bpf: map_create: Operation not permitted"
    assert reasons[1].startswith("firewall: ip")


def _locks(folder: str) -> bool:
    """Tell whether a user without rights can lock the folder."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            become(NOBODY)
            fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_no_user_holds_the_lock_of_a_helper(tree: Tree) -> None:
    box = tree.new_box()
    assert _locks(box.path)  # what anybody can open anybody can lock
    assert box.remove()
    assert not _locks(tree.path)
    os.chmod(tree.path, 0o755)  # as an earlier helper has left it
    assert _locks(tree.path)
    tree.create()
    assert not _locks(tree.path)
    os.close(tree.claim())
