"""The guard and the kernel give the same answer to the same act, but for a written list.

Policies and acts are generated from a seed. Each act is done on trees of its own: free, under the
guard, and confined. Where it works when it is free, both must do it, with the same effect, or both
refuse it, with none. OSGUARD_SEEDS=500 looks further than a test run does.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined as in_a_process
from kernel.acts import DONE, DOUBLE, SINGLE, build, perform, picture
from kernel.conftest import in_a_fork, plan_for
from kernel.known_disagreements import Case, is_known, is_known_remnant

from democrai_osguard import Rule, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Act = tuple[str, tuple[str, ...]]
    Policy = tuple[tuple[str, str], ...]

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

OPERATIONS = ("read", "create", "modify", "delete", "execute")
PLACES = ("in", "in/file", "in/sub", "in/new", "in/program", "in/empty", "out", "out/file")
NAMES = (
    *PLACES, "in/sub/file", "in/link", "in/away", "in/road", "in/road/file", "in/road/new",
    "in/sub/new", "out/new", "in/sub/../file",
)  # fmt: skip
SEEDS = int(os.environ.get("OSGUARD_SEEDS", "30"))
MOST_RULES = 6
ACTS_AT_ONCE = 25


def generated(seed: int) -> tuple[Policy, list[Act]]:
    """Return a policy and acts, the same ones for the same seed on every machine."""
    choice = random.Random(seed)  # noqa: S311 - nothing here is secret
    rules = {
        (choice.choice(OPERATIONS), choice.choice(PLACES))
        for _ in range(choice.randint(0, MOST_RULES))
    }
    acts = [choice.choice([*SINGLE, *DOUBLE, *DOUBLE]) for _ in range(ACTS_AT_ONCE)]
    wanted = [
        (act, tuple(choice.choice(NAMES) for _ in range(2 if act in DOUBLE else 1))) for act in acts
    ]
    return tuple(sorted(rules)), wanted


@pytest.mark.parametrize("seed", range(SEEDS))
def test_they_agree(seed: int, tmp_path: Path) -> None:
    policy, wanted = generated(seed)
    unknown = [case for case in disagreements(tmp_path, policy, wanted) if not is_known(case)]
    assert not unknown


def disagreements(folder: Path, policy: Policy, wanted: list[Act]) -> Iterator[Case]:
    """Do the acts in the three ways; fail where an effect is not what the answer says."""
    trees = {
        way: [folder / way / str(place) for place in range(len(wanted))]
        for way in ("free", "guarded", "confined")
    }
    for tree in itertools.chain(*trees.values()):
        build(tree)
    before = picture(trees["free"][0])
    free = run_free(trees["free"], wanted)
    guarded = run_guarded(trees["guarded"], wanted, policy)
    confined = run_confined(trees["confined"], wanted, policy)
    for place, act in enumerate(wanted):
        if free[place] != DONE:
            continue  # it proves nothing
        case = Case(policy, *act, guarded[place], confined[place])
        after = picture(trees["free"][place])
        for way, answer in (("guarded", case.guard), ("confined", case.kernel)):
            expected = after if answer == DONE else before
            check_effect(case, picture(trees[way][place]), expected)
        if case.guard != case.kernel:
            yield case


def check_effect(case: Case, found: dict[str, object], expected: dict[str, object]) -> None:
    """Fail where the tree is not as the answer says."""
    remnants = {path for path in found.keys() - expected.keys() if is_known_remnant(case, path)}
    assert {path: found[path] for path in found.keys() - remnants} == expected, case


def perform_all(trees: list[Path], wanted: list[Act]) -> list[str]:
    return [
        perform(act, tuple(f"{tree}/{path}" for path in paths))
        for tree, (act, paths) in zip(trees, wanted, strict=True)
    ]


def run_free(trees: list[Path], wanted: list[Act]) -> list[str]:
    return list(in_a_process(lambda: perform_all(trees, wanted)))


def run_guarded(trees: list[Path], wanted: list[Act], policy: Policy) -> list[str]:
    access = [
        Rule.of("filesystem", operation, f"{tree}/{path}")
        for tree in trees
        for operation, path in policy
    ]

    def run() -> list[str]:
        with process_guard_context(
            "agreement", "module", access=access, allow_subprocess=True, include_runtime_paths=False
        ):
            return perform_all(trees, wanted)

    return list(in_a_process(run))


def run_confined(trees: list[Path], wanted: list[Act], policy: Policy) -> list[str]:
    plan = plan_for((operation, tree / path) for tree in trees for operation, path in policy)

    def run() -> None:
        os.write(1, json.dumps(perform_all(trees, wanted)).encode())

    said = in_a_fork(run, plan)
    assert said.endswith("]allowed"), said
    return list(json.loads(said.removesuffix("allowed")))
