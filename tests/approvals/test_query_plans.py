"""What every decision does besides deciding costs no more with the number of requests kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from democrai_osguard.approvals import open_store, request_table, schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from democrai_osguard.approvals.database import Row, Transaction
    from democrai_osguard.approvals.sql_store import SqlStore

TABLE = "approval_requests"


@dataclass
class Asking:
    """A transaction that asks how its changes would be made, and makes none."""

    transaction: Transaction
    explain: str
    plans: list[str] = field(default_factory=list)

    def execute(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        return self.transaction.execute(sql, values)

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        rows = self.execute(f"{self.explain} {sql}", values)
        self.plans.append(" ".join(str(row[-1]) for row in rows))
        return 0


def plans_of_forgetting(store: SqlStore) -> list[str]:
    """Return how the planner would find what is to be forgotten."""
    is_postgres = store.database.dialect.shares
    with store.database.write() as transaction:
        if is_postgres:  # a table of no rows is read whole, unless that costs more than anything
            transaction.change("SET LOCAL enable_seqscan = off")
        asking = Asking(transaction, "EXPLAIN" if is_postgres else "EXPLAIN QUERY PLAN")
        request_table.forget(asking, 1000.0)
    return asking.plans


def reads_all(plan: str) -> bool:
    """Tell whether a plan looks at every request."""
    return f"SCAN {TABLE}" in plan or f"Seq Scan on {TABLE}" in plan


@pytest.fixture
def earlier_url(store_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a store of the first version."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        patch.setattr(schema, "VERSION", 1)
        store = open_store(store_url)
        assert all(map(reads_all, plans_of_forgetting(store)))
        store.close()
    return store_url


@pytest.fixture(params=["new", "brought forward"])
def store(request: pytest.FixtureRequest, store_url: str) -> Iterator[SqlStore]:
    """Return a store of this version, made so or brought forward from the first."""
    if request.param == "brought forward":
        request.getfixturevalue("earlier_url")
    made = open_store(store_url)
    yield made
    made.close()


def test_what_is_to_be_forgotten_is_found_without_reading_every_request(store: SqlStore) -> None:
    plans = plans_of_forgetting(store)
    assert len(plans) == 2
    for plan, index in zip(plans, ("withdrawn", "closed"), strict=True):
        assert f"{TABLE}_{index}" in plan
        assert not reads_all(plan)
