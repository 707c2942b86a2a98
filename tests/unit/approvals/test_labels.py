"""What is asked for, as people read it in every interface."""

from __future__ import annotations

import pytest

from democrai_osguard import Rule
from democrai_osguard.approvals.records import label


@pytest.mark.parametrize(
    ("resource_type", "operation", "words"),
    [
        ("network", "connect", "Network connect"),
        ("network", "receive", "Network receive"),
        ("network", "send", "Network send"),
        ("filesystem", "read", "Filesystem read"),
        ("filesystem", "create", "Filesystem create"),
        ("filesystem", "modify", "Filesystem modify"),
        ("filesystem", "delete", "Filesystem delete"),
        ("filesystem", "execute", "Filesystem execute"),
        ("system_dependency", "execute", "System dependency execute"),
    ],
)
def test_a_label_says_the_resource_type_and_the_operation(
    resource_type: str, operation: str, words: str
) -> None:
    assert label(Rule.of(resource_type, operation, "git")) == words
