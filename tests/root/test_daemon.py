"""The whole daemon, asked over its socket, as a launcher and an application would."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Final

import pytest
from root.daemons import NOBODY, Daemon, Resident, become, eventually, resident
from root.lab import ALLOWED, FORBIDDEN, PORT
from root.programs import attached, is_loaded

from democrai_osguard_helper import crowd, protocol
from democrai_osguard_helper.bpf_hooks import HOOKS
from democrai_osguard_helper.cgroups import Tree, find_mount
from democrai_osguard_helper.client import Client, HelperRefused, HelperUnavailable
from democrai_osguard_helper.desk import CALLS
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.protocol import (
    Confine,
    Denial,
    Events,
    Listening,
    Revoke,
    Subject,
    Update,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
ONE: Final = (Endpoint(parse_network(ALLOWED[4]), PORT),)
TWO: Final = (*ONE, Endpoint(parse_network(FORBIDDEN[4]), PORT))
REFUSED: Final = {"Operation not permitted", "Connection refused"}


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


@pytest.mark.parametrize("other", [False, True], ids=["same instance", "another instance"])
def test_a_second_start_leaves_the_first_daemon_its_socket(running: Daemon, other: bool) -> None:
    second = Daemon(running.folder, "other" if other else running.instance)
    second.folder = running.folder / "own" if other else running.folder
    second.start()
    assert second.process is not None
    assert second.process.wait(60) == 1
    assert os.path.exists(Tree(find_mount(), second.instance).path) is not other
    with resident(running.socket, ONE) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
    assert running.process is not None
    running.process.terminate()
    assert running.process.wait(60) == 0
    assert not os.path.exists(running.socket)


def test_a_host_without_the_wanted_layers_refuses(daemon: Daemon) -> None:
    daemon.layers = "bpf"
    daemon.start()
    daemon.wait()
    child = Resident(daemon.socket, ONE, require="full")
    child.end()
    assert child.sandbox.startswith("! not_enforceable: firewall: switched off")


def test_a_process_inside_a_sandbox_is_refused_on_every_connection(running: Daemon) -> None:
    inherited = [Client(running.socket) for _ in CALLS]
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = []
        try:
            own = Client(running.socket)
            own.status()
            with Client(running.socket) as client:
                applied = client.confine(Confine(Subject("tool", "x"), None, ONE, (), "full"))
            for act, early in zip(_every_call(applied.sandbox), inherited, strict=True):
                connections = own, early, Client(running.socket)
                said += [_refusal(act, connection) for connection in connections]
        finally:
            os.write(writer, " ".join(said).encode())
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    assert os.read(reader, 4096).decode().split() == ["inside_sandbox"] * 3 * len(CALLS)
    os.close(reader)
    for early in inherited:
        early.close()


def test_a_child_outside_may_use_what_it_inherited(running: Daemon) -> None:
    with Client(running.socket) as inherited:
        child = os.fork()
        if child == 0:
            os._exit(0 if inherited.status().instance == running.instance else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("count", [1, 2, 200])
def test_nobody_sends_descriptors(running: Daemon, tmp_path: Path, count: int) -> None:
    assert running.process is not None
    pid, sent = running.process.pid, str(tmp_path / "sent")
    with open(sent, "wb") as file, socket.socket(socket.AF_UNIX) as talk:
        assert _holds(os.getpid(), sent)
        talk.connect(running.socket)
        socket.send_fds(talk, [protocol.frame(protocol.Status())], [file.fileno()] * count)
        size = int.from_bytes(talk.recv(protocol.HEADER), "big")
        reply = protocol.parse_reply(talk.recv(size))
        assert isinstance(reply, protocol.Refused)
        assert reply.code == "protocol_violation"
        assert not _holds(pid, sent)


def _holds(pid: int, path: str) -> bool:
    """Tell whether a process has this file open."""
    folder = f"/proc/{pid}/fd"
    found = False
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found |= os.readlink(f"{folder}/{name}") == path
    return found


def test_who_is_confined_hears_no_more_events(running: Daemon) -> None:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            heard = Client(running.socket).events()
            listening = threading.Thread(target=lambda: theirs.send(_heard(heard)))
            listening.start()
            eventually(lambda: _listeners(running) == 1)
            with Client(running.socket) as client:
                client.confine(Confine(Subject("tool", "x"), None, ONE, (), "full"))
            theirs.send(b"in")
            listening.join()
        finally:
            os._exit(0)
    with ours, theirs:
        ours.settimeout(30)
        assert ours.recv(64) == b"in"
        with resident(running.socket, ONE) as child:
            child.does("tcp", FORBIDDEN[4], PORT)
            assert ours.recv(64) == b"HelperSilent"
    os.waitpid(pid, 0)


def _heard(events: Iterator[object]) -> bytes:
    try:
        return type(next(events)).__name__.encode()
    except HelperUnavailable as error:
        return type(error).__name__.encode()


def _listeners(running: Daemon) -> int:
    with Client(running.socket) as client:
        return client.status().listeners


def _every_call(sandbox: str) -> tuple[Callable[[Client], object], ...]:
    return (
        lambda client: client.update(Update(sandbox, TWO, ())),
        lambda client: client.revoke(Revoke(sandbox, ONE, ())),
        lambda client: client.release(sandbox),
        lambda client: client.show(sandbox),
        lambda client: client.list(),
        lambda client: client.status(),
        lambda client: client._ask(Events(), Listening),  # noqa: SLF001 - without waiting for one
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


def test_a_user_without_rights_confines_itself_and_rules_over_its_own_only(
    daemon: Daemon, open_folder: str
) -> None:
    daemon.socket = f"{open_folder}/helper.sock"
    daemon.start("--group", "nogroup")
    daemon.wait()

    assert stat.S_IMODE(os.stat(daemon.socket).st_mode) == 0o660
    with resident(daemon.socket, ONE, before=lambda: become(NOBODY)) as child:
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        said = _as_stranger(daemon, child.sandbox)
    assert said == "unknown_sandbox"


_GIVEN: Final = """
cp -a /etc $1 && echo 4000:100000:65536 > $1/etc/subuid && mount --bind $1/etc /etc
shift && exec "$@"
"""


def test_many_subordinate_users_get_no_more_connections_than_their_user(
    daemon: Daemon, open_folder: str, tmp_path: Path
) -> None:
    daemon.socket = f"{open_folder}/helper.sock"
    daemon.prefix = ("unshare", "-m", "sh", "-c", _GIVEN, "sh", str(tmp_path))
    daemon.start("--group", "nogroup")
    daemon.wait()
    with contextlib.ExitStack() as stack:

        def served(uid: int) -> int:
            clients = [stack.enter_context(_client_as(daemon, uid)) for _ in range(crowd.FEW)]
            return sum(_answers(client) for client in clients)

        strangers = sum(served(200000 + number) for number in range(8))
        assert strangers == 8 * crowd.FEW == crowd.MANY
        assert sum(served(100000 + number) for number in range(8)) == crowd.FEW
        assert served(4000) == 0
        assert served(4001) == crowd.FEW


def _client_as(daemon: Daemon, uid: int) -> Client:
    os.setegid(NOBODY)
    os.seteuid(uid)
    try:
        return Client(daemon.socket)
    finally:
        os.seteuid(0)
        os.setegid(0)


def _answers(client: Client) -> bool:
    try:
        return bool(client.status().version)
    except (HelperRefused, HelperUnavailable):
        return False


def _as_stranger(daemon: Daemon, sandbox: str) -> str:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "released"
        try:
            become(12345)
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


@pytest.mark.parametrize("layers", ["bpf", "firewall", "bpf,firewall"])
def test_while_a_policy_changes_no_more_than_old_and_new_is_open_and_no_less_than_both(
    daemon: Daemon, layers: str
) -> None:
    daemon.layers = layers
    daemon.start()
    daemon.wait()
    others = tuple(Endpoint(parse_network(f"192.0.2.{number}"), 80) for number in range(200))
    with (
        resident(daemon.socket, ONE) as stormy,
        resident(daemon.socket, ONE) as steady,
        Client(daemon.socket) as client,
    ):
        stormy.begin("storm", FORBIDDEN[4], PORT)
        steady.begin("steady", ALLOWED[4], PORT)
        for turn in range(30):  # few and many: by difference, and by swapping whole sets
            more = others[: (0, 5, 200)[turn % 3]]
            for child in (stormy, steady):
                client.update(Update(child.sandbox, (*ONE, *more), ()))
        assert stormy.weather() == "silent"
        assert steady.weather() == "allowed"


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


@pytest.mark.parametrize("layers", ["bpf", "firewall"])
def test_what_ends_right_after_its_refusal_is_told_too(daemon: Daemon, layers: str) -> None:
    daemon.layers = layers
    daemon.start()
    daemon.wait()
    tried = {(FORBIDDEN[4], port) for port in range(8001, 8013)}
    for place in sorted(tried):
        with resident(daemon.socket, ONE) as child:
            child.does("tcp", *place)
    with Client(daemon.socket) as client:
        assert eventually(lambda: client.list().sandboxes == ())
    heard: set[tuple[str, int]] = set()
    client = Client(daemon.socket)
    listener = threading.Thread(target=_gather, args=(client, heard))
    listener.start()
    assert eventually(lambda: heard == tried)
    client.hang_up()
    listener.join()
    client.close()


def _gather(client: Client, heard: set[tuple[str, int]]) -> None:
    with contextlib.suppress(HelperUnavailable):  # the test hangs up
        for event in client.events():
            if isinstance(event, Denial):
                heard.add((event.address, event.port))


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
