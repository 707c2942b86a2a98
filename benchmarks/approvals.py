"""How long a check takes that an approval answers, with few decisions stored and with many."""

from __future__ import annotations

import atexit
import functools
import itertools
import shutil
import sqlite3
import tempfile
from typing import TYPE_CHECKING

from benchmarks.case import Case
from democrai_osguard import Policy, Rule, Subject, decide
from democrai_osguard.access import AccessRequest, Operation, ResourceType
from democrai_osguard.approvals import ApprovalService, open_store
from democrai_osguard.approvals.covering import digest, encoded, rule_key
from democrai_osguard.policy.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.case import Act
    from democrai_osguard.policy.ledger import Verdicts

_MODULE = Subject.parse("module:notes")
_FEW, _MANY = 1_000, 1_000_000
_ASKED = 1_000  # targets in turn, spread over all decisions: no page is in a cache by luck
_COLUMNS = (
    "id, subject_type, subject_name, resource_type, operation, key, session_key, scope, target,"
    " identity, decided_by, decided_at"
)


def cases() -> list[Case]:
    """Return the cases of this file."""
    few, many = (_service(count) for count in (_FEW, _MANY))
    return [
        Case(
            "check that an approval answers",
            ("1,000 decisions", _checks(few, _FEW)),
            {"1,000,000 decisions": _checks(many, _MANY)},
            limit=1.5,
        ),
        Case(
            "decision in a guard activation",
            ("no approvals", _decisions(_FEW, None)),
            {
                "remembered approval": _decisions(_FEW, few.verdicts()),
                "approval looked up": _decisions(_FEW, few),
            },
        ),
    ]


def _checks(service: ApprovalService, count: int) -> Act:
    turn = itertools.cycle(_requests(count))
    return lambda: service.check(next(turn))


def _decisions(count: int, verdicts: Verdicts | None) -> Act:
    chain = Chain.of(_MODULE)
    policy = Policy(chain) if verdicts is None else Policy(chain, verdicts=verdicts)
    turn = itertools.cycle(_requests(count)[:10])
    return lambda: decide(next(turn), policy)


def _requests(count: int) -> list[AccessRequest]:
    what = (_MODULE, ResourceType.FILESYSTEM, Operation.READ)
    return [
        AccessRequest(*what, f"/srv/d{number * 7919 % count}/data/a/b/c", "sess-1")
        for number in range(0, count, count // _ASKED)
    ]


@functools.cache
def _service(count: int) -> ApprovalService:
    """Return a service whose store holds so many permanent approvals, written in one go."""
    folder = tempfile.mkdtemp(prefix="osguard-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = f"{folder}/store/approvals.sqlite3"
    service = ApprovalService(open_store(f"sqlite://{path}"))
    marks = ",".join("?" * len(_COLUMNS.split(",")))
    with sqlite3.connect(path) as connection:
        connection.executemany(
            f"INSERT INTO approval_standing ({_COLUMNS}) VALUES ({marks})",  # noqa: S608 - our own columns
            _rows(count),
        )
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return service


def _rows(count: int) -> Iterator[tuple[object, ...]]:
    for number in range(count):
        rule = Rule.of("filesystem", "read", f"/srv/d{number}/data")
        target = encoded(rule.target)
        what = ("module", "notes", "filesystem", "read", rule_key(_MODULE, rule))
        yield (number + 1, *what, "", "permanent", target, digest(target), "bench", 0.0)
