"""What the helper tells besides refusals is said to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from democrai_osguard.enforcement.following import told
from democrai_osguard_helper.protocol import Denial, Notice, Subject

if TYPE_CHECKING:
    import pytest


def test_a_notice_is_said_and_everything_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    subject = Subject("tool", "notes")
    events: list[Denial | Notice] = [
        Notice("0123456789ab", "name_failed", "gone.example.com: no such name"),
        Denial("0123456789ab", 0, subject, None, "192.0.2.7", 443, "tcp", None, 1),
        Notice(None, "repaired", "the firewall layer was put back"),
    ]
    assert list(told(events)) == list(events)
    assert caplog.messages == [
        "sandbox 0123456789ab: name_failed: gone.example.com: no such name",
        "the helper: repaired: the firewall layer was put back",
    ]
