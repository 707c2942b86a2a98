"""Modes and profiles hold when something is done, not only when somebody looked ahead."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from sdk.host import ANN, Host, rule

from democrai_osguard import Subject, runtime
from democrai_osguard.access import Identity, Scope
from democrai_osguard.errors import ProfileError
from democrai_osguard.permissions.modes import Answer, Mode, Permissions
from democrai_osguard.permissions.precheck import PathField, precheck
from democrai_osguard.permissions.profiles import DENY_READ, DENY_WRITE, profile_policy
from democrai_osguard.policy.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.access import AccessRequest

NOTES = Subject.parse("module:notes")
ACTS = """
import os

def main(act, path):
    try:
        if act == "read":
            with open(path) as file:
                return file.read()
        if act == "write":
            with open(path, "a") as file:
                file.write("+")
        if act == "create":
            with open(path + ".new", "x") as file:
                file.write("new")
        if act == "delete":
            os.remove(path)
        return "done"
    except PermissionError as error:
        return error.code
"""
REFUSED = "sandbox_filesystem_denied"


class Person:
    """Answers every question with the same word, and keeps what was asked."""

    def __init__(self, answer: object = Answer.DENY) -> None:
        self.asked: list[str] = []
        self.answer = answer

    async def __call__(self, request: AccessRequest) -> Answer:
        self.asked.append(f"{request.operation} {request.target}")
        if self.answer == "hang":
            await asyncio.sleep(3600)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[return-value] # nonsense is part of the tests


def classify(answer: object) -> Callable[[AccessRequest], Any]:
    async def classifier(_request: AccessRequest) -> object:
        if answer == "hang":
            await asyncio.sleep(3600)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return classifier


def deny_by_operator(host: Host, operation: str) -> None:
    target = str(host.outside / "file")
    what = Identity("module", "notes", "filesystem", operation, target, Scope.DENIED)  # type: ignore[arg-type] # words
    host.service.record(what, ANN)


# What is decided about the act before any mode has a say.
SITUATIONS = ("declared", "undeclared", "glob", "denied", "read-only")
ASKED = {"undeclared", "glob"}


def permissions_of(mode: Mode | None, person: Person) -> Permissions | None:
    if mode is None:
        return None
    return Permissions(mode, person, classify=classify("allow"), patience=60)


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("mode", [None, *Mode])
@pytest.mark.parametrize("yes", [True, False])
def test_every_mode_against_every_decision(
    host: Host, mode: Mode | None, situation: str, yes: bool
) -> None:
    person = Person(Answer.SESSION if yes else Answer.DENY)
    permissions = permissions_of(mode, person)
    if permissions is not None and not yes:
        permissions.classify = classify("deny")
    profile = Profile.of(
        read_only=situation == "read-only", deny_write=["file"] if situation == "glob" else []
    )
    runtime.use_approvals(host.service, profiles={NOTES: profile}, permissions=permissions)
    if situation == "denied":
        deny_by_operator(host, "modify")
    declared = () if situation == "undeclared" else (rule("filesystem", "modify", host.outside),)
    main = host.load(ACTS)
    with host.guard(access=declared):
        found = main("write", str(host.outside / "file"))
    asks = situation in ASKED
    allowed = situation == "declared" or (asks and mode is Mode.BYPASS)
    if asks and mode in {Mode.SUPERVISED, Mode.AUTO}:
        allowed = yes
    assert found == ("done" if allowed else REFUSED)
    assert (host.outside / "file").read_text() == ("secret+" if allowed else "secret")
    assert bool(person.asked) is (asks and mode is Mode.SUPERVISED)


@pytest.mark.parametrize("act", ["write", "create", "delete"])
def test_a_read_only_profile_is_opened_by_nothing(host: Host, act: str) -> None:
    person = Person(Answer.PERMANENT)
    runtime.use_approvals(
        host.service, profiles={NOTES: Profile.of(read_only=True)},
        permissions=Permissions(Mode.BYPASS, person),
    )  # fmt: skip
    for operation in ("create", "modify", "delete"):
        for target in (host.outside / "file", host.outside / "file.new"):
            what = Identity("module", "notes", "filesystem", operation, str(target),  # type: ignore[arg-type] # words
                            Scope.PERMANENT)  # fmt: skip
            host.service.record(what, ANN)
    main = host.load(ACTS)
    everything = tuple(
        rule("filesystem", word, host.outside) for word in ("read", "create", "modify", "delete")
    )
    with host.guard(access=everything):
        assert main("read", str(host.outside / "file")) == "secret"
        assert main(act, str(host.outside / "file")) == REFUSED
    assert person.asked == []


def test_a_glob_sends_a_declared_read_to_a_person_and_an_approval_opens_it(host: Host) -> None:
    profile = Profile.of(deny_read=["*.pem", *DENY_READ], deny_write=DENY_WRITE)
    runtime.use_approvals(host.service, profiles={NOTES: profile})
    key = host.outside / "own.pem"
    key.write_text("key")
    declared = (rule("filesystem", "read", host.outside),)
    main = host.load(ACTS)
    with host.guard(access=declared):
        assert main("read", str(key)) == REFUSED
        assert main("read", str(host.outside / "file")) == "secret"
    what = Identity("module", "notes", "filesystem", "read", str(key), Scope.PERMANENT)  # type: ignore[arg-type] # words
    host.service.record(what, ANN)
    with host.guard(access=declared):
        assert main("read", str(key)) == "key"


def test_a_profile_holds_for_every_chain_that_its_subject_is_in(host: Host) -> None:
    profiles = {Subject.parse("tool:editor"): Profile.of(read_only=True)}
    runtime.use_approvals(host.service, profiles=profiles)
    main = host.load(ACTS)
    declared = (rule("filesystem", "modify", host.outside),)
    with host.guard(access=declared):
        assert main("write", str(host.outside / "file")) == "done"
        with runtime.tool_context("editor"):
            assert main("write", str(host.outside / "file")) == REFUSED
            with runtime.tool_context("inner"):
                assert main("write", str(host.outside / "file")) == REFUSED


def test_what_bypass_lets_through_is_in_the_audit_log(host: Host) -> None:
    told: list[str] = []
    permissions = Permissions(
        Mode.BYPASS, Person(), record=lambda event, _request: told.append(event)
    )
    for _ in range(2):  # an application may say so again
        runtime.use_approvals(host.service, permissions=permissions)
    main = host.load(ACTS)
    with host.guard():
        assert main("read", str(host.outside / "file")) == "secret"
    assert told == ["bypass"]
    log = (host.folder / "state/audit/audit.jsonl").read_text().splitlines()
    (record,) = [each for each in map(json.loads, log) if each["event"] == "bypass"]
    assert (record["subject"], record["operation"]) == ("module:notes", "read")
    assert record["target"] == str(host.outside / "file")


def test_a_bypass_that_cannot_be_written_down_does_not_happen(host: Host) -> None:
    runtime.use_approvals(host.service, permissions=Permissions(Mode.BYPASS, Person()))
    main = host.load(ACTS)
    audit = host.folder / "state/audit"
    for file in audit.iterdir():
        file.unlink()
    audit.rmdir()
    audit.write_text("in the way")
    with host.guard(), pytest.raises(RuntimeError, match="sandbox_external_access_check_failed"):
        main("read", str(host.outside / "file"))


@pytest.mark.parametrize(
    ("answer", "allowed"),
    [(Answer.ONCE, True), (Answer.SESSION, True), (Answer.PERMANENT, True), (Answer.DENY, False),
     ("hang", False), (ValueError("the window is gone"), False), ("perhaps", False),
     (asyncio.CancelledError(), False),
     (None, False)],
)  # fmt: skip
def test_a_person_s_answer_and_silence_are_what_they_are(
    host: Host, answer: object, allowed: bool
) -> None:
    patience = 0.2 if answer == "hang" else 60
    person = Person(answer)
    permissions = Permissions(Mode.SUPERVISED, person, patience=patience)
    runtime.use_approvals(host.service, permissions=permissions)
    main = host.load(ACTS)
    with host.guard():
        assert main("read", str(host.outside / "file")) == ("secret" if allowed else REFUSED)
    assert len(person.asked) == 1


@pytest.mark.parametrize(
    "nonsense", ["hang", ValueError("broken"), "yes", None, True, 5, ["allow"], object()]
)
def test_a_classifier_without_a_plain_answer_leaves_it_to_a_person(
    host: Host, nonsense: object
) -> None:
    person = Person(Answer.SESSION)
    patience = 0.2 if nonsense == "hang" else 60
    runtime.use_approvals(host.service, permissions=Permissions(
        Mode.AUTO, person, classify=classify(nonsense), patience=patience))  # fmt: skip
    main = host.load(ACTS)
    with host.guard():
        assert main("read", str(host.outside / "file")) == "secret"
    assert len(person.asked) == 1


def test_each_thing_is_asked_once_a_session_and_siblings_apart(host: Host) -> None:
    person = Person(Answer.SESSION)
    permissions = Permissions(Mode.SUPERVISED, person)
    runtime.use_approvals(host.service, permissions=permissions)
    (host.outside / "sibling").write_text("other")
    main = host.load(ACTS)
    for _ in range(2):
        with host.guard():
            assert main("read", str(host.outside / "file")) == "secret"
    assert person.asked == [f"read {host.outside}/file"]
    with host.guard():
        main("read", str(host.outside / "sibling"))
        main("delete", str(host.outside / "sibling"))
    assert person.asked[1:] == [f"read {host.outside}/sibling", f"delete {host.outside}/sibling"]
    with host.guard(session_key="s-2"):
        main("read", str(host.outside / "file"))
    assert len(person.asked) == 4
    permissions.end_session("s-1")
    with host.guard():
        main("read", str(host.outside / "file"))
    assert len(person.asked) == 5


def test_concurrent_askers_share_one_question(host: Host) -> None:
    released = threading.Event()
    asked: list[str] = []

    async def ask(request: AccessRequest) -> Answer:
        asked.append(request.target)
        await asyncio.to_thread(released.wait, 60)
        return Answer.SESSION

    runtime.use_approvals(host.service, permissions=Permissions(Mode.SUPERVISED, ask))
    main = host.load(ACTS)
    found: list[str] = []

    def work() -> None:
        with host.guard():
            found.append(main("read", str(host.outside / "file")))

    workers = [threading.Thread(target=work) for _ in range(5)]
    for worker in workers:
        worker.start()
    while not asked:
        time.sleep(0.01)
    released.set()
    for worker in workers:
        worker.join()
    assert found == ["secret"] * 5
    assert asked == [str(host.outside / "file")]


def test_a_question_can_be_put_to_the_page_and_the_command_line(host: Host) -> None:
    ask = runtime.ask_through(host.service, patience=60)
    permissions = Permissions(Mode.SUPERVISED, ask, remember=False)
    runtime.use_approvals(host.service, permissions=permissions)
    main = host.load(ACTS)

    def while_it_waits(decide: Callable[[str], object]) -> str:
        found: list[str] = []

        def work() -> None:
            with host.guard():
                found.append(main("read", str(host.outside / "file")))

        worker = threading.Thread(target=work)
        worker.start()
        while not (waiting := [each for each in host.service.list_requests() if each.held]):
            time.sleep(0.01)
        decide(waiting[0].id)
        worker.join()
        return found[0]

    service = host.service
    assert while_it_waits(lambda id_: service.approve_once(id_, ANN)) == "secret"
    assert while_it_waits(lambda id_: service.approve_for_session(id_, ANN)) == "secret"
    with host.guard():
        assert main("read", str(host.outside / "file")) == "secret"  # nobody is asked again
    service.end_session("s-1")
    assert while_it_waits(lambda id_: service.deny(id_, ANN)) == REFUSED
    with host.guard():
        assert main("read", str(host.outside / "file")) == REFUSED


def test_what_was_settled_ahead_is_not_asked_again_when_it_is_done(host: Host) -> None:
    person = Person(Answer.SESSION)
    permissions = Permissions(Mode.SUPERVISED, person)
    runtime.use_approvals(host.service, permissions=permissions)
    tool = Subject.parse("tool:editor")
    policy = profile_policy("workspace_write", tool, [host.folder / "temp"])
    schema = (PathField("path", "write"),)
    ahead = precheck(schema, {"path": str(host.outside / "file")}, policy, base=host.folder,
                     session_key="s-1")  # fmt: skip
    settled = asyncio.run(permissions.settle_all(ahead))
    assert settled is not None
    assert settled.code == "session_approval"
    main = host.load(ACTS)
    with host.guard(), runtime.tool_context("editor"):
        assert main("write", str(host.outside / "file")) == "done"
        assert len(person.asked) == 1
        # What the schema did not tell is caught when it is done.
        assert main("delete", str(host.outside / "file")) == "done"
    assert person.asked == [f"modify {host.outside}/file", f"delete {host.outside}/file"]


def test_nobody_is_asked_about_a_call_of_which_a_part_is_denied(host: Host) -> None:
    person = Person(Answer.SESSION)
    permissions = Permissions(Mode.SUPERVISED, person)
    tool = Subject.parse("tool:editor")
    policy = profile_policy("workspace_write", tool, [host.folder / "temp"])
    schema = (PathField("paths", "write"),)
    paths = [str(host.outside / "file"), "/no/such/../../etc/x"]
    ahead = precheck(schema, {"paths": paths}, policy, base=host.folder)
    settled = asyncio.run(permissions.settle_all(ahead))
    assert settled is not None
    assert settled.code == "denied"
    assert person.asked == []
    assert asyncio.run(permissions.settle_all(())) is None


def test_a_task_is_held_to_the_profile_of_its_module(host: Host) -> None:
    runtime.use_approvals(host.service, profiles={NOTES: Profile.of(read_only=True)})
    main = host.load(ACTS)
    manifest = {"access": [rule("filesystem", "modify", host.outside)]}
    with runtime.task_context("notes", manifest, folder=host.folder / "notes"):
        assert main("write", str(host.outside / "file")) == REFUSED
    runtime.use_approvals(host.service)
    with runtime.task_context("notes", manifest, folder=host.folder / "notes"):
        assert main("write", str(host.outside / "file")) == "done"


@pytest.mark.parametrize(
    "profiles",
    [{"module:notes": Profile()}, {NOTES: "read_only"}, {NOTES: None}],
)
def test_a_profile_that_is_none_is_an_error_at_once(host: Host, profiles: Any) -> None:  # noqa: ANN401 - nonsense
    with pytest.raises(ProfileError):
        runtime.use_approvals(host.service, profiles=profiles)


def test_an_explicit_check_knows_what_was_answered_when_it_was_done(host: Host) -> None:
    person = Person(Answer.SESSION)
    permissions = Permissions(Mode.SUPERVISED, person)
    runtime.use_approvals(host.service, permissions=permissions)
    ask = host.load("""
        from democrai_osguard import sdk

        def main(target):
            return sdk.access.check_external_access(
                resource_type="filesystem", operation="read", target=target).code
    """)
    main = host.load(ACTS)
    target = str(host.outside / "file")
    with host.guard():
        assert ask(target) == "not_enabled"
        assert main("read", target) == "secret"
        assert ask(target) == "session_approval"
    assert len(person.asked) == 1
    with host.guard(session_key="s-2"):
        assert ask(target) == "not_enabled"


def test_a_session_that_the_service_ends_is_over_for_the_answers_as_well(host: Host) -> None:
    person = Person(Answer.SESSION)
    runtime.use_approvals(host.service, permissions=Permissions(Mode.SUPERVISED, person))
    main = host.load(ACTS)
    for asked in (1, 2):
        with host.guard():
            assert main("read", str(host.outside / "file")) == "secret"
        assert len(person.asked) == asked
        host.service.end_session("s-1")


def test_many_questions_wait_for_the_page_at_once_and_each_keeps_who_asks(host: Host) -> None:
    ask = runtime.ask_through(host.service, patience=60)
    permissions = Permissions(Mode.SUPERVISED, ask, remember=False)
    runtime.use_approvals(host.service, permissions=permissions)
    main = host.load(ACTS)
    count = 40  # more than a pool of threads has places
    for number in range(count):
        (host.outside / f"{number}").write_text("more")
    found: dict[int, str] = {}

    def work(number: int) -> None:
        with host.guard(), runtime.agent_context("reader"), runtime.tool_context("editor"):
            found[number] = main("read", str(host.outside / f"{number}"))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    while len(waiting := host.service.list_requests()) < count:
        time.sleep(0.01)
    for request in waiting:
        assert [str(each) for each in request.chain] == [
            "module:notes", "agent:reader", "tool:editor",
        ]  # fmt: skip
        assert (request.origin.user_id, request.origin.organization_id) == ("7", "3")
    last = next(each for each in waiting if each.rule.target.endswith(f"/{count - 1}"))
    host.service.approve_once(last.id, ANN)
    workers[-1].join(30)
    assert found == {count - 1: "more"}  # the others still wait
    host.service.end_session("s-1")  # which closes their questions: a no
    for worker in workers:
        worker.join()
    assert sorted(found.values()) == ["more", *[REFUSED] * (count - 1)]


def test_a_question_that_nobody_answered_is_not_left_on_the_page(host: Host) -> None:
    ask = runtime.ask_through(host.service, patience=60)
    permissions = Permissions(Mode.SUPERVISED, ask, remember=False, patience=0.2)
    runtime.use_approvals(host.service, permissions=permissions)
    main = host.load(ACTS)
    with host.guard():
        assert main("read", str(host.outside / "file")) == REFUSED
    until = time.monotonic() + 30
    while host.service.list_requests():
        assert time.monotonic() < until
        time.sleep(0.01)
