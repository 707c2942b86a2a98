"""The tests of this tree whose outcome the kernel decides, run in the machine against the wheel.

The others would say in hours what they say on any machine in minutes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from vm.conftest import SUITE

if TYPE_CHECKING:
    from collections.abc import Callable

    from vm.machine_operator import Operator

KEPT = Path(os.environ.get("DEMOCRAI_VM_LOGS", "build/vm")) / f"{SUITE}-tests.log"
OF_ANYBODY = "operations_matrix receipt network broker_socket_paths lacking_kernels"
OF_ROOT = f"{OF_ANYBODY} calls"
CHOSEN = {
    "kernel-root": ("root", " ".join(f"tests/kernel/test_{name}.py" for name in OF_ROOT.split())),
    "egress-root": ("root", "tests/root/test_egress_rows.py"),
    "kernel-ann": ("ann", " ".join(f"tests/kernel/test_{name}.py" for name in OF_ANYBODY.split())),
}
# From which Landlock ABI on the kernel must offer this to the tests; what it must, is not skipped.
OFFERS = {"landlock": 1, "landlock-truncate": 3, "landlock-tcp": 4, "landlock-scopes": 6}
# Not the helper of this machine, which would hold the network instead; and /tmp may lack devices.
SURROUNDINGS = "DEMOCRAI_OS_HELPER_SOCKET=/nonexistent/helper TMPDIR=/var/tmp"
OFFERED = ("seccomp", "cgroup2", "netns", "bpf", "iptables", "ipset", "gcc", "readable-tree")


@pytest.fixture(scope="module")
def started(operator: Operator, python: str, abi: int) -> dict[str, str]:
    """Start all of them at once, as the machine has two processors; return where to follow each."""
    must_run = [*OFFERED, *(name for name, since in OFFERS.items() if abi >= since)]
    surroundings = f"{SURROUNDINGS} OSGUARD_MUST_RUN={','.join(must_run)}"
    # Not the packages of the tree that the tests lie in: those of the wheel.
    words = f"{python} -P -m pytest -q --tb=short -rs -p no:cacheprovider -o pythonpath=tests"
    return {
        name: operator.machine.start(f"cd ~/work && {surroundings} {words} {places}", user)
        for name, (user, places) in CHOSEN.items()
    }


@pytest.mark.parametrize("name", CHOSEN)
def test_the_tests_pass_in_the_machine(
    operator: Operator, started: dict[str, str], name: str, show: Callable[[str], object]
) -> None:
    said = operator.machine.follow(started[name], show)
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(said.output)
    assert said.code == 0, f"see {KEPT}"
    assert " passed" in said.output.splitlines()[-1]
