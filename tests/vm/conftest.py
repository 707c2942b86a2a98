"""One machine for a run: the wheel before this one on its disk, booted, then this one over it.

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
from vm.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITE = os.environ.get("DEMOCRAI_VM_SUITE")
FOLDER = Path(os.environ.get("DEMOCRAI_VM_FOLDER", "."))
QUICK = os.environ.get("DEMOCRAI_VM_QUICK") == "1"
ABI = {"bookworm": 2, "trixie": 6, "sid": 10}
if SUITE is None:
    collect_ignore_glob = ["test_*.py"]


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
        made.install("tree" if QUICK else "previous")
        made.boot()
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def operator(machine: Machine) -> Operator:
    """Return who installs, starts sandboxes and looks at them; this wheel is installed."""
    hand = Operator(machine)
    hand.furnish()
    if not QUICK:
        hand.start_resident("upgraded")
        hand.install("tree")
    return hand


@pytest.fixture(autouse=True)
def _says_what_the_machine_does(request: pytest.FixtureRequest) -> Iterator[None]:
    """Show the tail of the journal where a test failed."""
    before = request.session.testsfailed
    yield
    if request.session.testsfailed > before and "machine" in request.fixturenames:
        machine: Machine = request.getfixturevalue("machine")
        sys.stderr.write(machine.run("journalctl -b --no-pager -n 60").output)


def document(text: str) -> dict[str, object]:
    """Read what a program printed with --json."""
    read = json.loads(text[text.index("{") :])
    assert isinstance(read, dict)
    return read
