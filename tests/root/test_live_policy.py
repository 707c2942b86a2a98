"""What people decide reaches sandboxes that run: refused, asked, approved, connected, revoked."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import pytest
from root.attempts import tcp
from root.daemons import eventually, resident
from root.lab import ALLOWED, FORBIDDEN, OTHER_PORT, PORT
from root.talkers import PATIENCE, REFUSED, TALK, Talker

from democrai_osguard.access import Identity, Operation, ResourceType, Scope, SubjectType
from democrai_osguard.approvals import ApprovalService, Operator, open_store
from democrai_osguard.enforcement.following import EgressLink, Follower
from democrai_osguard_helper.client import Client
from democrai_osguard_helper.endpoints import Endpoint, parse_network

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from root.daemons import Daemon

    from democrai_osguard.approvals.records import PendingRequest

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset", "landlock-tcp", "seccomp")
ADA: Final = Operator("ada", super_role=True)
ONE: Final = (Endpoint(parse_network(ALLOWED[4]), PORT),)
_CONFINED: Final = """
import sys
from democrai_osguard import Rule, Subject
from democrai_osguard.enforcement.egress import confine_this_process
confine_this_process(
    [Rule.of("network", "connect", sys.argv[2])],
    Subject.parse("module:notes"), "s-1", approvals=sys.argv[1],
)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DEMOCRAI_STATE_DIR", str(tmp_path / "state"))
    return f"sqlite://{tmp_path}/state/approvals/a.sqlite3"


@pytest.fixture
def service(store: str) -> Iterator[ApprovalService]:
    made = ApprovalService(open_store(store))
    yield made
    made.close()


@pytest.fixture
def running(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    monkeypatch.setenv("DEMOCRAI_OS_HELPER_SOCKET", daemon.socket)
    daemon.start()
    daemon.wait()
    return daemon


@pytest.fixture
def itself(running: Daemon, store: str, service: ApprovalService) -> Iterator[Talker]:
    """Return an application that confined itself, with a companion that follows the store."""
    assert service.list_requests() == []
    script = _CONFINED + TALK
    talker = Talker(
        [sys.executable, "-c", script, store, f"{ALLOWED[4]}:{PORT}"],
        {"DEMOCRAI_OS_HELPER_SOCKET": running.socket},
    )
    yield talker
    talker.close()


@pytest.fixture
def launched(running: Daemon, service: ApprovalService) -> Iterator[Talker]:
    """Return a command under the launcher, and follow the store from here, where it was started."""
    words = [sys.executable, "-I", "-m", "democrai_osguard_launcher", "--subject", "module:notes"]
    rules = ["--connect", f"{ALLOWED[4]}:{PORT}"]
    environment = {"DEMOCRAI_OS_HELPER_SOCKET": running.socket, "DEMOCRAI_SESSION_KEY": "s-1"}
    talker = Talker([*words, *rules, "--", sys.executable, "-I", "-c", TALK], environment)
    with EgressLink(service, running.socket):
        yield talker
        talker.close()


@pytest.fixture(params=["itself", "launched"])
def talker(request: pytest.FixtureRequest) -> Talker:
    found: Talker = request.getfixturevalue(request.param)
    return found


def asked_for(service: ApprovalService, place: str) -> PendingRequest:
    """Wait until a person is asked about a place."""
    assert eventually(lambda: place in {r.rule.target for r in service.list_requests()}, PATIENCE)
    (found,) = (each for each in service.list_requests() if each.rule.target == place)
    return found


@pytest.mark.parametrize("port", [PORT, OTHER_PORT])
def test_approved_it_connects_and_revoked_its_socket_dies(
    talker: Talker, service: ApprovalService, port: int
) -> None:
    place = FORBIDDEN[4], port
    assert tcp(*place) == b"ok"
    assert talker.does("hold", ALLOWED[4], PORT) == "ok"
    assert talker.does("hold", *place) in REFUSED
    request = asked_for(service, f"{FORBIDDEN[4]}:{port}")
    assert (str(request.subject), request.origin.session_key) == ("module:notes", "s-1")
    service.approve_for_session(request.id, ADA)
    assert eventually(lambda: talker.does("hold", *place) == "ok", PATIENCE)
    # It waits and sends nothing: only a destroyed socket can end that.
    talker.begin("wait", *place)
    (decision,) = service.list_decisions()
    service.revoke(decision.id, ADA)
    assert talker.result() == "ConnectionAbortedError"
    assert talker.does("hold", *place) in REFUSED
    assert talker.does("hold", ALLOWED[4], PORT) == "ok"


def test_a_denial_closes_what_the_manifest_opened(talker: Talker, service: ApprovalService) -> None:
    assert talker.does("hold", ALLOWED[4], PORT) == "ok"
    talker.begin("wait", ALLOWED[4], PORT)
    target = f"{ALLOWED[4]}:{PORT}"
    what = (ResourceType.NETWORK, Operation.CONNECT, target, Scope.DENIED, None)
    service.record(Identity(SubjectType.MODULE, "notes", *what), ADA)
    assert talker.result() == "ConnectionAbortedError"
    assert talker.does("hold", ALLOWED[4], PORT) in REFUSED
    assert service.list_requests() == []  # it is decided: nobody is asked again


def test_an_approval_reaches_its_subject_and_session_only(
    running: Daemon, service: ApprovalService
) -> None:
    target = f"{FORBIDDEN[4]}:{PORT}"
    follower = Follower(service)
    with resident(running.socket, ONE) as child, Client(running.socket) as client:
        for name, scope, session in (
            ("other", Scope.PERMANENT, None),
            ("demo", Scope.SESSION, "s2"),  # the child's is s1
        ):
            what = (ResourceType.NETWORK, Operation.CONNECT, target, scope, session)
            service.record(Identity(SubjectType.MODULE, name, *what), ADA)
            follower.settle(client)
            assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        what = (ResourceType.NETWORK, Operation.CONNECT, target, Scope.SESSION, "s1")
        service.record(Identity(SubjectType.MODULE, "demo", *what), ADA)
        assert follower.settle(client) == 1
        assert child.does("tcp", FORBIDDEN[4], PORT) == "allowed"
        service.end_session("s1")
        # Another one that knows nothing of the first takes back what is not approved any more.
        assert Follower(service).settle(client) == 1
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"


def test_a_store_leaves_alone_what_another_store_decided_about(
    running: Daemon, service: ApprovalService, tmp_path: Path
) -> None:
    other = ApprovalService(open_store(f"sqlite://{tmp_path}/other/a.sqlite3"))
    target = f"{ALLOWED[4]}:{PORT}"
    what = (ResourceType.NETWORK, Operation.CONNECT, target, Scope.DENIED, None)
    with resident(running.socket, ONE) as child, Client(running.socket) as client:
        assert Follower(other).settle(client) == 0  # nothing is decided there: nothing to do
        service.record(Identity(SubjectType.MODULE, "demo", *what), ADA)
        assert Follower(service).settle(client) == 1
        assert child.does("tcp", ALLOWED[4], PORT) == "Operation not permitted"
        open_it = (ResourceType.NETWORK, Operation.CONNECT, f"{FORBIDDEN[4]}:{PORT}")
        other.record(Identity(SubjectType.MODULE, "demo", *open_it, Scope.PERMANENT, None), ADA)
        assert Follower(other).settle(client) == 0
        assert child.does("tcp", ALLOWED[4], PORT) == "Operation not permitted"
        service.revoke(service.list_decisions()[0].id, ADA)
        assert Follower(service).settle(client) == 1
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        assert Follower(other).settle(client) == 1  # it is as it was made: whoever comes first
        assert child.does("tcp", FORBIDDEN[4], PORT) == "allowed"
    other.close()


def test_a_helper_that_comes_back_is_followed_again(
    running: Daemon, service: ApprovalService
) -> None:
    what = (ResourceType.NETWORK, Operation.CONNECT, f"{FORBIDDEN[4]}:{PORT}", Scope.PERMANENT)
    with resident(running.socket, ONE) as child, EgressLink(service, running.socket):
        running.kill()
        service.record(Identity(SubjectType.MODULE, "demo", *what, None), ADA)
        assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        running.start()
        running.wait()
        assert eventually(lambda: child.does("tcp", FORBIDDEN[4], PORT) == "allowed", PATIENCE)


def test_a_listing_tells_whose_a_sandbox_is_and_how_often_it_was_refused(running: Daemon) -> None:
    with resident(running.socket, ONE) as child, Client(running.socket) as client:
        (before,) = client.list().sandboxes
        for _ in range(3):
            assert child.does("tcp", FORBIDDEN[4], PORT) == "Operation not permitted"
        assert eventually(lambda: client.list().sandboxes[0].refusals == 3, PATIENCE)
        assert (before.refusals, before.uid) == (0, os.geteuid())
        assert (before.subject.name, before.session) == ("demo", "s1")
        assert before.since == client.list().sandboxes[0].since > 1_700_000_000
        assert client.show(child.sandbox).endpoints == ONE
