"""Runs an act in a fork under one layer alone, so that nobody has to guess which one stops it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from escapes.outcome import ALLOWED, TOGETHER, UNTRIED, name_of, name_of_end
from kernel.conftest import become, plan_for

from democrai_osguard.guard import install, process_guard_context
from democrai_osguard_launcher.enforcement import assemble, enforce, enforce_always, prepare
from democrai_osguard_launcher.plan import Plan
from democrai_osguard_launcher.supervision import split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kernel.conftest import Action, Grant


def _apply(plan: Plan, keep: Iterable[int], *, seccomp: bool) -> None:
    enforce_always(has_seccomp=seccomp)
    restrictions = prepare(plan, assemble(plan, supervised=bool(plan.brokered)))
    enforce(restrictions, keep, split(plan) if plan.brokered else None)


def _changed(plan: Plan, **fields: object) -> Plan:
    values: dict[str, Any] = dict(zip(Plan._fields, plan, strict=True)) | fields
    return Plan(**values)


# What is taken away so that one layer is left, and whether the calls themselves are filtered.
_ALONE: dict[str, tuple[dict[str, object], bool]] = {
    "landlock": ({"seccomp": False, "brokered": ()}, False),
    "seccomp": ({"abi": 0, "brokered": ()}, True),
    "broker": ({"abi": 0, "seccomp": False}, False),
    TOGETHER: ({}, True),
}
KERNEL_LAYERS = tuple(_ALONE)


def confine(layer: str, grants: Sequence[Grant], keep: Iterable[int] = ()) -> None:
    """Confine this process for good by one layer of the launcher, or by all of them together."""
    taken, seccomp = _ALONE[layer]
    _apply(_changed(plan_for(grants), **taken), keep, seccomp=seccomp)


def under(layer: str, act: Action, grants: Sequence[Grant], uid: int = 0) -> str:
    """Return what became of an act under one layer: `allowed`, or what stopped it."""
    return in_a_fork(lambda: confine(layer, grants), act, uid)


def freely(act: Action, uid: int = 0) -> str:
    """Return what became of an act that nothing confines."""
    return in_a_fork(lambda: None, act, uid)


def under_guard(act: Action, folder: str) -> str:
    """Return what became of an act in a process with the guard and no other layer."""

    def guarded() -> None:
        with process_guard_context("report", "module", allowed_paths=[folder]):
            act()

    return in_a_fork(install, guarded, 0)


def in_a_fork(enter: Callable[[], object], act: Action, uid: int) -> str:
    """Confine a fork, let it act, and return what it said of itself."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _speak(writer, enter, act, uid)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        verdict = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return verdict or name_of_end(status)


def _speak(writer: int, enter: Callable[[], object], act: Action, uid: int) -> None:
    verdict = UNTRIED
    try:
        os.dup2(writer, 1)  # the enforcement closes what is above 2
        become(uid)
        enter()
        verdict = "crashed"
        act()
        verdict = ALLOWED
    except BaseException as error:  # noqa: BLE001 - whatever stopped it is the finding
        verdict = name_of(error) if verdict == "crashed" else f"{UNTRIED}: {error}"
    finally:
        os.write(1, verdict.encode())
        os._exit(0)
