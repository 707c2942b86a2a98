from __future__ import annotations

import pytest

from democrai_osguard import Rule
from democrai_osguard.approvals import NotWidenable
from democrai_osguard.approvals.widening import widened


@pytest.mark.parametrize(
    ("resource_type", "operation", "target", "wider"),
    [
        ("filesystem", "read", "/srv/data/a.csv", "/srv/data"),
        ("filesystem", "delete", "/home/alice/notes/a", "/home/alice/notes"),
        ("network", "send", "https://api.example.com/v1/mail?a=b", "https://api.example.com"),
        ("network", "receive", "http://api.example.com:8080/x", "http://api.example.com:8080"),
    ],
)
def test_a_rule_widens_to_its_folder_or_origin(
    resource_type: str, operation: str, target: str, wider: str
) -> None:
    found = widened(Rule.of(resource_type, operation, target))
    assert found.rule == Rule.of(resource_type, operation, wider)
    assert wider in found.opens


@pytest.mark.parametrize(
    ("resource_type", "operation", "target"),
    [
        ("filesystem", "read", "/"),
        ("filesystem", "read", "/etc"),
        ("filesystem", "read", "/home/alice"),
        ("filesystem", "read", "/home/alice/notes"),
        ("network", "connect", "example.com"),
        ("network", "connect", "example.com:443"),
        ("network", "receive", "https://example.com"),
        ("network", "connect", "192.0.2.0/24"),
        ("system_dependency", "execute", "git"),
    ],
)
def test_what_is_broad_or_whole_does_not_widen(
    resource_type: str, operation: str, target: str
) -> None:
    with pytest.raises(NotWidenable):
        widened(Rule.of(resource_type, operation, target))
