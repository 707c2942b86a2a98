"""One machine for a run, with this wheel; where upgrades are looked at, over the one before it.

Nothing here is collected unless DEMOCRAI_VM_SUITE names a suite: `make test-vm` does.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from vm.machine import Machine
from vm.machine_operator import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SUITE = os.environ.get("DEMOCRAI_VM_SUITE")
FOLDER = Path(os.environ.get("DEMOCRAI_VM_FOLDER", "."))
QUICK = os.environ.get("DEMOCRAI_VM_QUICK") == "1"
UPGRADES = os.environ.get("DEMOCRAI_VM_UPGRADE") == "1"
UPGRADED = {"ann": "upgraded", "root": "upgraded-of-root"}  # sandboxes that live meanwhile
ABI = {"bookworm": 2, "trixie": 6, "sid": 10}
if SUITE is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once what failed: the end of the run may be hours away."""
    if report.failed:
        sys.stdout.write(f"\n{report.longreprtext}\n")
        sys.stdout.flush()


@pytest.fixture(scope="session")
def abi() -> int:
    """Return the Landlock ABI that the suite's kernel must have."""
    assert SUITE is not None
    return ABI[SUITE]


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """Return the running machine."""
    image = Path(os.environ["DEMOCRAI_VM_IMAGE"])
    made = Machine(image, FOLDER / "payload.ext4", FOLDER)
    try:
        made.install("previous" if UPGRADES else "tree")
        made.boot()
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def operator(machine: Machine) -> Operator:
    """Return who installs, starts sandboxes and looks at them; this wheel is installed."""
    hand = Operator(machine)
    hand.furnish()
    if UPGRADES:
        for user, name in UPGRADED.items():
            hand.start_resident(name, user)
        assert "0.0.1" in machine.must_succeed("democrai-osguard --version")
        hand.install("tree")
    return hand


@pytest.fixture(scope="session")
def python(operator: Operator) -> str:
    """Return a Python that finds the installed wheel and what the tests import."""
    operator.machine.must_succeed(  # scripts/vm-install laid it out; which release is this one's?
        "{ echo /opt/tests-site; ls -d /opt/democrai-osguard/*/lib/python3*/site-packages; } "
        "> $(ls -d /opt/tests/lib/python3*/site-packages)/payload.pth"
    )
    return "/opt/tests/bin/python"


@pytest.fixture(autouse=True)
def _says_what_the_machine_does(request: pytest.FixtureRequest) -> Iterator[None]:
    """Show the tail of the journal where a test failed."""
    before = request.session.testsfailed
    yield
    if request.session.testsfailed > before and "machine" in request.fixturenames:
        machine: Machine = request.getfixturevalue("machine")
        sys.stderr.write(machine.run("journalctl -b --no-pager -n 60").output)


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[[str], object]:
    """Return what shows a text at once, whatever pytest captures: for what takes long."""

    def shown(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(text)
            sys.stdout.flush()

    return shown


def document(text: str) -> dict[str, object]:
    """Read what a program printed with --json."""
    read = json.loads(text[text.index("{") :])
    assert isinstance(read, dict)
    return read
