"""PostgreSQL answers as the ledger in memory does, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from unit.approvals.test_store_answers_as_the_ledger import (
    compare_with_ledger,
    decisions,
    requests,
)

from democrai_osguard.approvals import ApprovalService, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from approvals.postgres_server import PostgresServer

    from democrai_osguard.access import AccessRequest, Identity


@pytest.fixture(scope="module")
def shared(postgres: PostgresServer) -> Iterator[ApprovalService]:
    """Return one service for all examples."""
    made = ApprovalService(open_store(postgres.fresh_url()))
    yield made
    made.close()


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(decisions, requests)
def test_the_server_answers_as_the_ledger_does(
    shared: ApprovalService, made: list[Identity], asked_for: list[AccessRequest]
) -> None:
    for standing in shared.list_decisions():
        shared.store.revoke(standing.id, "tests", 0.0, lambda _: None)
    compare_with_ledger(shared, made, asked_for)
