"""Every mode against every decision, and what goes wrong while asking."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from democrai_osguard import Allow, Deny, RequiresApproval, Rule, Subject
from democrai_osguard.errors import ContractError
from democrai_osguard.permissions.modes import Answer, Mode, Permissions
from democrai_osguard.targets.request import access_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from democrai_osguard.access import AccessRequest

TOOL = Subject.parse("tool:editor")


def wants(
    path: str = "/srv/a", operation: str = "modify", session_key: str | None = "s"
) -> RequiresApproval:
    request = access_request(TOOL, "filesystem", operation, path, session_key=session_key)
    return RequiresApproval(request, "nothing allows it")


class Person:
    """Answers questions from a list, and counts them."""

    def __init__(self, *answers: object) -> None:
        self.asked: list[str] = []
        self.answers = list(answers)

    async def __call__(self, request: AccessRequest) -> Answer:
        self.asked.append(f"{request.operation} {request.target}")
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[return-value] # nonsense is part of the test


def classifier(answer: object) -> Callable[[AccessRequest], Awaitable[object]]:
    async def classify(_: AccessRequest) -> object:
        if answer == "hang":
            await asyncio.sleep(60)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return classify


@pytest.mark.parametrize("mode", list(Mode))
def test_no_mode_asks_about_what_is_decided(mode: Mode) -> None:
    request = wants().request
    allow = Allow("sandbox_allowed", Rule.of("filesystem", "modify", "/srv"), TOOL)
    deny = Deny(request, "the profile is read-only")
    person = Person()
    permissions = Permissions(mode, person)
    assert asyncio.run(permissions.settle(allow)) is allow
    assert asyncio.run(permissions.settle(deny)) is deny
    assert person.asked == []


def test_bypass_allows_and_records_that_it_did() -> None:
    records: list[str] = []
    permissions = Permissions(
        Mode.BYPASS,
        Person(),
        record=lambda event, request: records.append(f"{event} {request.target}"),
    )
    settled = asyncio.run(permissions.settle(wants()))
    assert isinstance(settled, Allow)
    assert settled.code == "bypass"
    assert records == ["bypass /srv/a"]
    unrecorded = asyncio.run(Permissions(Mode.BYPASS).settle(wants()))
    assert isinstance(unrecorded, Deny)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer.ONCE, "approved_once"),
        (Answer.SESSION, "session_approval"),
        (Answer.PERMANENT, "permanent_approval"),
        (Answer.DENY, "denied"),
    ],
)
def test_a_person_s_answer_is_the_decision(answer: Answer, code: str) -> None:
    settled = asyncio.run(Permissions(Mode.SUPERVISED, Person(answer)).settle(wants()))
    assert settled.code == code


@pytest.mark.parametrize(
    "nonsense", ["maybe", None, 7, EOFError("closed"), OSError("gone"), asyncio.CancelledError()]
)
def test_anything_but_an_answer_is_a_no(nonsense: object) -> None:
    settled = asyncio.run(Permissions(Mode.SUPERVISED, Person(nonsense)).settle(wants()))
    assert isinstance(settled, Deny)


def test_a_question_that_nobody_answers_is_a_no_and_is_asked_again() -> None:
    async def silence(_: AccessRequest) -> Answer:
        await asyncio.sleep(60)
        return Answer.SESSION

    permissions = Permissions(Mode.SUPERVISED, silence, patience=0.01)
    assert isinstance(asyncio.run(permissions.settle(wants())), Deny)
    permissions.ask = Person(Answer.SESSION)
    assert isinstance(asyncio.run(permissions.settle(wants())), Allow)


@pytest.mark.parametrize(
    ("answer", "asked", "allowed"),
    [
        ("allow", 0, True),
        ("deny", 0, False),
        ("yes", 1, True),
        (None, 1, True),
        (True, 1, True),
        (ValueError("broken"), 1, True),
        ("hang", 1, True),
    ],
)
def test_a_classifier_that_gives_no_plain_answer_hands_on_to_a_person(
    answer: object, asked: int, allowed: bool
) -> None:
    person = Person(Answer.SESSION)
    patience = 0.05 if answer == "hang" else 60
    permissions = Permissions(Mode.AUTO, person, classify=classifier(answer), patience=patience)
    settled = asyncio.run(permissions.settle(wants()))
    assert len(person.asked) == asked
    assert isinstance(settled, Allow) is allowed


def test_each_thing_is_asked_once_and_siblings_and_other_operations_apart() -> None:
    async def run() -> None:
        permissions = Permissions(Mode.SUPERVISED, person)
        for act in (wants(), wants(), wants("/srv/b"), wants(operation="read"), wants("/srv/a/x")):
            await permissions.settle(act)

    person = Person(*[Answer.SESSION] * 4)
    asyncio.run(run())
    assert person.asked == ["modify /srv/a", "modify /srv/b", "read /srv/a", "modify /srv/a/x"]


def test_once_is_asked_every_time() -> None:
    async def run() -> None:
        permissions = Permissions(Mode.SUPERVISED, person)
        await permissions.settle(wants())
        await permissions.settle(wants())

    person = Person(Answer.ONCE, Answer.DENY)
    asyncio.run(run())
    assert len(person.asked) == 2


def test_concurrent_askers_share_one_question_even_if_the_first_goes_away() -> None:
    async def run() -> list[Allow | Deny]:
        permissions = Permissions(Mode.SUPERVISED, person)
        first = asyncio.ensure_future(permissions.settle(wants()))
        others = [asyncio.ensure_future(permissions.settle(wants())) for _ in range(5)]
        await asyncio.sleep(0)
        first.cancel()
        return list(await asyncio.gather(*others))

    person = Person(Answer.SESSION)
    settled = asyncio.run(run())
    assert person.asked == ["modify /srv/a"]
    assert all(isinstance(each, Allow) for each in settled)


@pytest.mark.parametrize("word", ["bypass", "supervised", "auto"])
def test_a_mode_may_be_written_as_its_word(word: str) -> None:
    assert Permissions(word, Person()).mode is Mode(word)  # type: ignore[arg-type] # a word


@pytest.mark.parametrize("word", ["Bypass", "", None, True, "allow"])
def test_a_mode_that_there_is_not_is_an_error_and_not_another_mode(word: object) -> None:
    with pytest.raises(ContractError, match="is not a mode"):
        Permissions(word, Person())  # type: ignore[arg-type] # nonsense is the test


def test_whoever_is_asked_may_be_a_plain_function() -> None:
    asked: list[str] = []

    def person(request: AccessRequest) -> Answer:
        asked.append(request.target)
        return Answer.SESSION

    settled = asyncio.run(Permissions(Mode.SUPERVISED, person).settle(wants()))
    assert settled.code == "session_approval"
    permissions = Permissions(Mode.AUTO, person, classify=lambda _request: "deny")
    assert isinstance(asyncio.run(permissions.settle(wants())), Deny)
    assert asked == ["/srv/a"]


SETTLED = threading.Event()


def blocks(_request: AccessRequest) -> object:
    SETTLED.wait(60)
    return "allow"


def leaves(_request: AccessRequest) -> object:
    sys.exit("the classifier")


async def leaves_later(_request: AccessRequest) -> object:
    await asyncio.sleep(0)
    raise KeyboardInterrupt


async def does_not_listen(_request: AccessRequest) -> object:
    for _ in range(100):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    return "allow"


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("nothing to say")


async def unspeakable(_request: AccessRequest) -> object:
    return Unspeakable()


@pytest.mark.parametrize("classify", [blocks, leaves, leaves_later, does_not_listen, unspeakable])
def test_a_classifier_that_misbehaves_holds_up_nobody_and_a_person_is_asked(
    classify: Callable[[AccessRequest], object],
) -> None:
    async def run() -> Allow | Deny:
        permissions = Permissions(Mode.AUTO, person, classify=classify, patience=0.2)
        settled = await permissions.settle(wants())
        SETTLED.set()  # only now does the one that blocks come back
        return settled

    SETTLED.clear()
    person = Person(Answer.SESSION)
    assert isinstance(asyncio.run(run()), Allow)
    assert person.asked == ["modify /srv/a"]


def test_an_answer_for_good_counts_in_every_session_and_one_for_a_session_in_its_own() -> None:
    async def run() -> None:
        permissions = Permissions(Mode.SUPERVISED, person)
        for path in ("/srv/a", "/srv/b"):
            for session_key in ("s", "t", None):
                await permissions.settle(wants(path, session_key=session_key))

    person = Person(Answer.PERMANENT, *[Answer.SESSION] * 3)
    asyncio.run(run())
    assert person.asked == ["modify /srv/a", *["modify /srv/b"] * 3]


def test_without_a_session_an_answer_for_one_counts_once() -> None:
    async def run() -> None:
        permissions = Permissions(Mode.SUPERVISED, person)
        for _ in range(2):
            settled = await permissions.settle(wants(session_key=None))
            assert isinstance(settled, Allow)

    person = Person(Answer.SESSION, Answer.SESSION)
    asyncio.run(run())
    assert len(person.asked) == 2


def test_a_session_that_ends_takes_its_answers_and_its_open_questions_with_it() -> None:
    async def run() -> list[Allow | Deny]:
        answered = asyncio.Event()

        async def slow(request: AccessRequest) -> Answer:
            await answered.wait()
            return await person(request)

        permissions = Permissions(Mode.SUPERVISED, person)
        first = await permissions.settle(wants("/srv/b"))
        permissions.ask = slow
        waiting = asyncio.ensure_future(permissions.settle(wants()))
        await asyncio.sleep(0)
        permissions.end_session("s")
        answered.set()
        late = await waiting
        return [
            first,
            late,
            *[await permissions.settle(wants(path)) for path in ("/srv/a", "/srv/b")],
        ]

    person = Person(*[Answer.SESSION] * 4)
    settled = asyncio.run(run())
    assert [type(each) for each in settled] == [Allow, Deny, Allow, Allow]
    assert person.asked == ["modify /srv/b", "modify /srv/a", "modify /srv/a", "modify /srv/b"]


def test_askers_in_other_event_loops_share_the_question() -> None:
    released = threading.Event()
    person = Person(Answer.SESSION)

    def slow(request: AccessRequest) -> Answer:
        assert released.wait(60)
        return asyncio.run(person(request))

    permissions = Permissions(Mode.SUPERVISED, slow)
    found: list[Allow | Deny] = []
    workers = [
        threading.Thread(target=lambda: found.append(asyncio.run(permissions.settle(wants()))))
        for _ in range(5)
    ]
    for worker in workers:
        worker.start()
    time.sleep(0.05)
    released.set()
    for worker in workers:
        worker.join()
    assert [each.code for each in found] == ["session_approval"] * 5
    assert len(person.asked) == 1


@pytest.mark.parametrize("patience", [0, -1, float("inf"), float("nan")])
def test_a_patience_that_is_none_is_an_error(patience: float) -> None:
    with pytest.raises(ContractError, match="no time to wait"):
        Permissions(Mode.SUPERVISED, Person(), patience=patience)


@pytest.mark.parametrize("mode", [Mode.SUPERVISED, Mode.AUTO])
def test_nobody_to_ask_is_a_no(mode: Mode) -> None:
    assert isinstance(asyncio.run(Permissions(mode).settle(wants())), Deny)
