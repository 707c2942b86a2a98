"""The operations matrix against the real kernel: exact in every cell with the broker on.

Without a broker some cells differ from the contract. They are all on a written list, with the
reason, and all but those of looking are stricter than the contract.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from host_features import require
from kernel.conftest import in_a_fork, plan_for
from kernel.folder_acts import OPERATIONS
from kernel.matrix import KINDS, POSITIONS, Cell, act_of, lay_out

from democrai_osguard_launcher.facts import gather
from democrai_osguard_launcher.plan import GUARD_ONLY, Facts, make_plan

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Free, Grant

    from democrai_osguard_launcher.plan import Plan

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

ACTS = ("read", "look", "create", "modify", "change", "delete", "execute")
ROWS = [(act, kind) for act in ACTS for kind in KINDS]
REFUSALS = {"EACCES", "EPERM"}
# What opens more than its name says, with or without a broker.
ALSO_OPENED_BY = {"read": {"execute"}}  # a program can be read while it runs, so it is not held


def without_broker(cell: Cell) -> bool:
    """Tell whether the cell is allowed where no call can wait for anybody. The written list."""
    if cell.act == "look" or (cell.act, cell.kind) == ("read", "socket"):
        return True  # Landlock does not see stat
    if cell.act == "change" or (cell.act == "modify" and cell.kind in {"directory", "socket"}):
        return False  # nor chmod, so it is refused
    if cell.act in {"create", "delete"} and cell.position == "granted":
        return False  # Landlock gives these rights beneath folders, not on single names
    if (cell.act, cell.kind) == ("create", "file"):
        return False  # a right to write only what is new does not exist
    return cell.is_allowed


def planned(grants: list[Grant], *, broker: bool) -> Plan:
    rules = [each.rule for each in plan_for(grants).rules]
    facts = gather(rules, None, os.environ.get("PATH"))
    known = dict(zip(Facts._fields, facts, strict=True))
    seen = Facts(**{**known, "notifications": facts.notifications and broker})  # type: ignore[arg-type]
    return make_plan(rules, seen, stat_as_read=broker)


def done(cell: Cell, at: Path, grants: list[Grant], *, broker: bool) -> bool:
    """Do what the cell says under the grants; tell whether that was allowed."""
    at.mkdir()
    path = lay_out(at, cell)
    # Somebody must read from a fifo for it to be opened to write.
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if path.is_fifo() else None
    try:
        placed: list[Grant] = [(operation, at / target) for operation, target in grants]
        verdict = in_a_fork(lambda: act_of(cell)(path), planned(placed, broker=broker))
    finally:
        if reader is not None:
            os.close(reader)
    assert verdict in {"allowed", *REFUSALS}, (cell, verdict)
    return verdict == "allowed"


@pytest.fixture(params=ROWS, ids=" ".join)
def row(request: pytest.FixtureRequest) -> tuple[str, str]:
    act, kind = request.param
    if kind == "device":
        require("root")
    return act, kind


def test_the_act_works_without_protection(row: tuple[str, str], tmp_path: Path, free: Free) -> None:
    cell = Cell(*row, "granted")
    path = lay_out(tmp_path, cell)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if path.is_fifo() else None
    if cell.act == "execute" and cell.is_impossible:
        assert free(lambda: act_of(cell)(path)) == "EACCES", "the kernel itself starts only files"
    else:
        assert free(lambda: act_of(cell)(path)) == "allowed"
    if reader is not None:
        os.close(reader)


@pytest.mark.parametrize("broker", [True, False], ids=["broker", "no broker"])
def test_each_cell_is_as_it_is_written(
    row: tuple[str, str], tmp_path: Path, *, broker: bool
) -> None:
    for position in POSITIONS:
        cell = Cell(*row, position)
        grants: list[Grant] = [(cell.operation, cell.target(tmp_path).relative_to(tmp_path))]
        expected = cell.is_allowed if broker else without_broker(cell)
        assert done(cell, tmp_path / position, grants, broker=broker) == expected, cell


def test_no_other_operation_opens_it(row: tuple[str, str], tmp_path: Path) -> None:
    cell = Cell(*row, "granted")
    others = set(OPERATIONS) - {cell.operation} - ALSO_OPENED_BY.get(cell.operation, set())
    grants: list[Grant] = [(each, place) for each in others for place in ("inner", "inner/object")]
    assert not done(cell, tmp_path / "others", grants, broker=True)


def test_the_label_of_a_rule_agrees(row: tuple[str, str], tmp_path: Path) -> None:
    """Where no broker is, a rule that opens less than the contract says is not called exact."""
    for position in ("granted", "child"):
        cell = Cell(*row, position)
        at = tmp_path / position
        at.mkdir()
        lay_out(at, cell)
        grants: list[Grant] = [(cell.operation, cell.target(at))]
        (with_one,), (without,) = (planned(grants, broker=each).rules for each in (True, False))
        assert with_one.label != GUARD_ONLY
        if without.label != GUARD_ONLY and cell.is_allowed and not without_broker(cell):
            assert "without a broker" in without.held_by, cell
