"""Every mode against every decision, and what goes wrong while asking."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from democrai_osguard import Allow, Deny, RequiresApproval, Rule, Subject
from democrai_osguard.permissions.modes import Answer, Mode, Permissions
from democrai_osguard.targets.request import access_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from democrai_osguard.access import AccessRequest

TOOL = Subject.parse("tool:editor")


def wants(path: str = "/srv/a", operation: str = "modify") -> RequiresApproval:
    request = access_request(TOOL, "filesystem", operation, path, session_key="s")
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
        if isinstance(answer, Exception):
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


@pytest.mark.parametrize("nonsense", ["maybe", None, 7, EOFError("closed"), OSError("gone")])
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
    permissions = Permissions(Mode.AUTO, person, classify=classifier(answer), patience=0.05)
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
