"""The whole daemon, asked over its socket, as a launcher and an application would."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Final

import pytest
from root.daemons import Daemon, Resident, eventually, resident
from root.lab import ALLOWED, FORBIDDEN, PORT
from root.programs import attached, is_loaded

from democrai_osguard_helper.bpf_hooks import HOOKS
from democrai_osguard_helper.cgroups import Tree, find_mount
from democrai_osguard_helper.client import Client, HelperRefused
from democrai_osguard_helper.desk import CALLS
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.protocol import Confine, Denial, Revoke, Subject, Update

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
ONE: Final = (Endpoint(parse_network(ALLOWED[4]), PORT),)
TWO: Final = (*ONE, Endpoint(parse_network(FORBIDDEN[4]), PORT))
NOBODY: Final = 65534
REFUSED: Final = {"Operation not permitted", "Connection refused"}


@pytest.fixture
def running(daemon: Daemon) -> Daemon:
    daemon.start()
    daemon.wait()
    return daemon


@pytest.mark.parametrize("layers", ["bpf", "firewall", "bpf,firewall"])
def test_a_confined_process_reaches_its_endpoints_only(daemon: Daemon, layers: str) -> None:
    daemon.layers = layers
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) in {
            "Operation not permitted",
            "Connection refused",
        }
        with Client(daemon.socket) as client:
            (listing,) = client.list().sandboxes
    assert set(listing.layers) == set(layers.split(","))
    assert (listing.sandbox, listing.populated, listing.session) == (child.sandbox, True, "s1")


def test_a_host_without_the_wanted_layers_refuses(daemon: Daemon) -> None:
    daemon.layers = "bpf"
    daemon.start()
    daemon.wait()
    child = Resident(daemon.socket, ONE, require="full")
    child.end()
    assert child.sandbox.startswith("! not_enforceable: firewall: switched off")


def test_a_process_inside_a_sandbox_is_refused_on_old_and_new_connections(running: Daemon) -> None:
    early = Client(running.socket)
    early.status()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = []
        try:
            own = Client(running.socket)
            own.status()
            with Client(running.socket) as client:
                applied = client.confine(Confine(Subject("tool", "x"), None, ONE, (), "full"))
            for act in _every_call(applied.sandbox):
                said += [_refusal(act, own), _refusal(act, Client(running.socket))]
        finally:
            os.write(writer, " ".join(said).encode())
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    assert os.read(reader, 4096).decode().split() == ["inside_sandbox"] * 2 * len(CALLS)
    os.close(reader)
    early.close()


def _every_call(sandbox: str) -> tuple[Callable[[Client], object], ...]:
    return (
        lambda client: client.update(Update(sandbox, TWO, ())),
        lambda client: client.revoke(Revoke(sandbox, ONE, ())),
        lambda client: client.release(sandbox),
        lambda client: client.show(sandbox),
        lambda client: client.list(),
        lambda client: client.status(),
        lambda client: next(client.events()),
        # Last: the helper hangs up after it, whatever the answer.
        lambda client: client.confine(Confine(Subject("tool", "x"), None, TWO, (), "full")),
    )


def _refusal(act: Callable[[Client], object], client: Client) -> str:
    try:
        act(client)
    except HelperRefused as error:
        return error.code
    return "done"


def test_a_peer_that_has_ended_is_refused(running: Daemon) -> None:
    """A child goes on with the connection of its parent, which is gone: nobody to move."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        client, parent = Client(running.socket), os.getpid()
        client.status()
        if os.fork() == 0:
            while os.getppid() == parent:
                time.sleep(0.01)
            said = "confined"
            try:
                client.confine(Confine(Subject("tool", "x"), None, ONE, (), "full"))
            except HelperRefused as error:
                said = error.code
            finally:
                os.write(writer, said.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    assert os.read(reader, 100) == b"peer_gone"
    os.close(reader)


def test_a_user_without_rights_confines_itself_and_rules_over_its_own_only(daemon: Daemon) -> None:
    daemon.folder.chmod(0o755)
    for parent in daemon.folder.parents[:2]:
        parent.chmod(0o755)
    daemon.start("--group", "nogroup")
    daemon.wait()

    def become_nobody() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    with resident(daemon.socket, ONE, before=become_nobody) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        said = _as_stranger(daemon, child.sandbox)
    assert said == "unknown_sandbox"


def _as_stranger(daemon: Daemon, sandbox: str) -> str:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "released"
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(12345)
            Client(daemon.socket).release(sandbox)
        except HelperRefused as error:
            said = error.code
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return pipe.read()


@pytest.mark.parametrize("layers", ["bpf", "firewall", "bpf,firewall"])
@pytest.mark.parametrize("version", [4, 6])
def test_an_update_and_a_revocation_reach_a_running_sandbox(
    daemon: Daemon, layers: str, version: int
) -> None:
    daemon.layers = layers
    daemon.start()
    daemon.wait()
    place = FORBIDDEN[version]
    more = Endpoint(parse_network(place), PORT)
    with resident(daemon.socket, ONE) as child, Client(daemon.socket) as client:
        assert child.does("hold", place, PORT) in REFUSED
        client.update(Update(child.sandbox, (*ONE, more), ()))
        assert child.does("hold", place, PORT) == "allowed"
        applied = client.revoke(Revoke(child.sandbox, (more,), ()))
        assert applied.destroyed == 1
        assert child.does("talk", place, PORT) == "Software caused connection abort"
        assert child.does("tcp", place, PORT) in REFUSED
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"


def test_what_was_never_granted_cannot_be_revoked(running: Daemon) -> None:
    with (
        resident(running.socket, ONE) as child,
        Client(running.socket) as client,
        pytest.raises(HelperRefused, match="not_granted"),
    ):
        client.revoke(Revoke(child.sandbox, TWO[1:], ()))


@pytest.mark.parametrize("layers", ["bpf", "firewall"])
def test_a_denial_arrives_as_an_event(daemon: Daemon, layers: str) -> None:
    daemon.layers = layers
    daemon.start()
    daemon.wait()
    heard: list[object] = []
    client = Client(daemon.socket)
    listener = threading.Thread(target=lambda: heard.append(next(client.events())))
    listener.start()
    with resident(daemon.socket, ONE) as child:
        for _ in range(3):
            child.does("udp", FORBIDDEN[4], PORT)
        listener.join(60)
    client.close()
    (denial,) = heard
    assert isinstance(denial, Denial)
    assert (denial.address, denial.port, denial.protocol) == (FORBIDDEN[4], PORT, "udp")
    assert (denial.sandbox, denial.subject.name, denial.session) == (child.sandbox, "demo", "s1")


def test_cycles_leave_nothing_behind(running: Daemon) -> None:
    assert running.process is not None
    tree, programs = Tree(find_mount(), running.instance), set[int]()
    for _ in range(10):
        with resident(running.socket, ONE) as child, Client(running.socket) as client:
            assert not client.release(child.sandbox).empty
    before = _descriptors(running.process.pid)
    for _ in range(40):
        with resident(running.socket, ONE) as child:
            programs |= attached(tree.box(child.sandbox))
            assert is_loaded(max(programs))
    with Client(running.socket) as client:
        assert eventually(lambda: not client.list().sandboxes)
    assert eventually(lambda: _descriptors(running.process.pid) <= before + 8)  # type: ignore[union-attr]
    running.stop()
    assert len(programs) == 40 * len(HOOKS)
    assert eventually(lambda: not any(map(is_loaded, programs)))
    assert not os.path.exists(tree.path)
    for family in ("iptables-save", "ip6tables-save"):
        saved = subprocess.run([family], capture_output=True, text=True, check=True).stdout
        assert "OSG" not in saved
    sets = subprocess.run(["ipset", "list", "-n"], capture_output=True, text=True, check=True)
    assert sets.stdout == ""
    assert os.listdir(daemon_state(running)) == ["lock"]


def daemon_state(daemon: Daemon) -> str:
    return str(daemon.folder / "state" / daemon.instance)


def test_many_are_held_at_once_and_each_by_its_own_policy(running: Daemon) -> None:
    places = [ONE, TWO[1:]]
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(resident(running.socket, places[turn % 2])) for turn in range(40)
        ]
        with Client(running.socket) as client:
            assert sum(each.populated for each in client.list().sandboxes) == 40
        for turn, child in enumerate(children):
            own, other = (ALLOWED[4], FORBIDDEN[4])[:: 1 if turn % 2 == 0 else -1]
            assert child.does("tcp", own, PORT) == "allowed"
            assert child.does("tcp", other, PORT) == "Operation not permitted"


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
