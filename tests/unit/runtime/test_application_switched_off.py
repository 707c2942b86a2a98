"""`runtime.confine_application` where the settings switch the operating system's layers off."""

from __future__ import annotations

import pytest

from democrai_osguard import Rule, runtime
from democrai_osguard.enforcement.egress import NotConfined
from democrai_osguard.settings import OsSettings

RULES = [Rule.of("network", "connect", "api.example.com:443")]


def test_where_nothing_is_required_the_application_stays_free() -> None:
    off = OsSettings(enabled=False, require="none")
    assert runtime.confine_application(RULES, settings=off) is None


@pytest.mark.parametrize("level", ["partial", "full"])
def test_where_something_is_required_it_is_an_error(level: str) -> None:
    off = OsSettings(enabled=False, require=level)
    with pytest.raises(
        NotConfined, match=r"egress_not_enforced: sandbox\.os\.enabled is false"
    ) as it:
        runtime.confine_application(RULES, settings=off)
    assert it.value.code == "egress_not_enforced"
