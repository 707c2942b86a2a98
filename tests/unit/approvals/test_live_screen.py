"""The live list of the terminal, driven without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, BOB, read
from approvals.hostile import HOSTILE_PATHS, RAW

from democrai_osguard.approvals import ApprovalService, Origin, open_store
from democrai_osguard.cli.output import printable
from democrai_osguard.ui.live_screen import CALM_SECONDS, LiveScreen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ApprovalService]:
    """Return a service on an empty store."""
    made = ApprovalService(open_store(f"sqlite://{tmp_path}/store/s"))
    yield made
    made.close()


class Clock:
    """A time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def text(screen: LiveScreen) -> str:
    return "\n".join(screen.lines(100, 40, printable))


def test_keys_count_only_when_the_list_has_stood_still(
    service: ApprovalService, clock: Clock
) -> None:
    asked = service.register(read("/srv/a"))
    screen = LiveScreen(service, ADA, clock)
    screen.press("d")
    assert "look again" in screen.words
    assert service.get(asked.id).state == "pending"
    clock.now += CALM_SECONDS
    screen.press("d")
    assert service.get(asked.id).state == "denied"


def test_a_call_that_waits_is_let_through_once(service: ApprovalService, clock: Clock) -> None:
    held = service.register(
        read("/srv/a"), Origin(None, None, "sess-1", "process 7: cat a"), held=True
    )
    screen = LiveScreen(service, ADA, clock)
    assert "process 7: cat a, which waits" in text(screen)
    clock.now += CALM_SECONDS
    screen.press("o")
    assert service.get(held.id).state == "once"
    assert service.list_decisions() == []


def test_what_does_not_wait_is_not_let_through_once(service: ApprovalService, clock: Clock) -> None:
    asked = service.register(read("/srv/a"))
    screen = LiveScreen(service, ADA, clock)
    clock.now += CALM_SECONDS
    screen.press("o")
    assert service.get(asked.id).state == "pending"
    assert screen.words


@pytest.mark.parametrize(("key", "scope"), [("s", "session"), ("p", "permanent"), ("d", "denied")])
def test_a_key_decides_and_another_takes_it_back(
    service: ApprovalService, clock: Clock, key: str, scope: str
) -> None:
    asked = service.register(read("/srv/a"))
    screen = LiveScreen(service, ADA, clock)
    clock.now += 1
    screen.press(key)
    assert service.get(asked.id).scope == scope
    screen.press("u")
    assert service.get(asked.id).state == "pending"
    assert service.list_decisions() == []


def test_arrows_choose(service: ApprovalService, clock: Clock) -> None:
    first, second = (service.register(read(path)) for path in ("/srv/a", "/srv/b"))
    screen = LiveScreen(service, ADA, clock)
    clock.now += 1
    for key in ("\x1b[B", "\x1b[B", "\x1b[A", "\x1b[B"):
        screen.press(key)
    screen.press("d")
    assert service.get(second.id).state == "denied"
    assert service.get(first.id).state == "pending"


def test_what_goes_wrong_is_said_and_the_list_goes_on(
    service: ApprovalService, clock: Clock
) -> None:
    asked = service.register(read("/srv/a", None))
    screen = LiveScreen(service, ADA, clock)
    clock.now += 1
    assert screen.press("s")
    assert "external_access_session_key_required" in text(screen)
    service.deny(asked.id, BOB)
    screen.press("p")
    assert "bob already decided" in text(screen)
    assert not screen.press("q")


def test_an_empty_list_takes_any_key(service: ApprovalService, clock: Clock) -> None:
    screen = LiveScreen(service, ADA, clock)
    for key in ("s", "p", "d", "u", "j", "k", "x", "\x00"):
        assert screen.press(key)
    assert "0 open requests" in text(screen)


def test_hostile_targets_are_spelled_out_and_fit(service: ApprovalService, clock: Clock) -> None:
    for path in HOSTILE_PATHS:
        service.register(read(path))
    for width, height in ((100, 60), (40, 10), (10, 3)):
        lines = LiveScreen(service, ADA, clock).lines(width, height, printable)
        assert [char for char in RAW if char in "".join(lines)] == []
        assert max(map(len, lines)) <= max(width - 1, 20)
