"""The ways to an address of `tests/root`, against each layer of the helper alone and both."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from escapes.outcome import TOGETHER, UNTRIED, Row
from root import lab
from root.checks import CHECKS, ROWS
from root.holding import holding

from democrai_osguard_helper.cgroups import NoCgroups, Tree, find_mount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from root.checks import Held

EGRESS, CHECK = "egress", "egress check"
_MODES = {"iptables": "firewall", "bpf": "bpf", TOGETHER: "both"}
_ABSENT = f"{UNTRIED}: this host lacks it"


def egress_rows() -> list[Row]:
    """Return each way out to an address that no rule names, in a network of the report's own."""
    try:
        tree = Tree(find_mount(), f"e{os.getpid() % 1000000}")
    except NoCgroups:
        return []
    tree.create()
    try:
        return list(_rows(tree))
    finally:
        tree.remove()


def _rows(tree: Tree) -> Iterator[Row]:
    tried = {layer: _tried(tree, mode) for layer, mode in _MODES.items()}
    free = _freely()
    for row in ROWS:
        words = {layer: found.get(row.name, _ABSENT) for layer, found in tried.items()}
        who = "root" if "raw" in row.attempt.__name__ else "user"
        yield Row(EGRESS, row.name, who, "reaches an address that no rule names",
                  free[row.name], words)  # fmt: skip
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        words = {layer: found.get(check.__name__, _ABSENT) for layer, found in tried.items()}
        does = (check.__doc__ or name).partition("\n")[0].rstrip(".")
        yield Row(CHECK, name, "root", does, "", words)


@contextlib.contextmanager
def _network() -> Iterator[None]:
    with lab.fresh_namespace():
        listeners = lab.Listeners()
        try:
            yield
        finally:
            listeners.close()


def _freely() -> dict[str, str]:
    with _network():
        return {
            row.name: lab.verdict(None, lambda row=row: row.attempt(lab.FORBIDDEN[row.version]))  # type: ignore[misc]
            for row in ROWS
        }


def _tried(tree: Tree, mode: str) -> dict[str, str]:
    with _network():
        try:
            with holding(mode, tree) as held:
                return _ways(held) | _checked(held)
        except AssertionError:  # the layer says that it cannot hold anything here
            return {}


def _ways(held: Held) -> dict[str, str]:
    return {
        row.name: lab.verdict(held.box, lambda row=row: row.attempt(lab.FORBIDDEN[row.version]))  # type: ignore[misc]
        for row in ROWS
    }


def _checked(held: Held) -> dict[str, str]:
    return {check.__name__: "; ".join(check(held)) or "holds" for check in CHECKS}
