"""The example application runs, and each of its steps goes as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

TOOL = "module:notes > pipeline:digest > agent:reader > tool:fetch"
# What is printed at each step, in this order, by whom.
EXPECTED = [
    ("module:notes", "allowed: Meet at noon."),
    (
        "module:notes",
        "refused: sandbox_filesystem_denied:notes:.*customer.csv .*chain=module:notes.",
    ),
    ("module:notes", "asked for it: not_enabled, request [0-9a-f]+"),
    ("the host", "the operator approves it on the command line, and the import goes on .*"),
    ("engine:counter", "allowed: 5"),
    ("engine:counter", "refused: sandbox_network_denied:counter:receive:http://192.0.2.1:[0-9]+"),
    (TOOL, "refused: sandbox_network_denied:fetch:receive:http://localhost:[0-9]+"),
    ("the host", f"the page shows: Network receive by {TOOL}"),
    ("the host", "the operator, on the page: approved True"),
    (TOOL, "allowed: hello"),
    ("the host", "refused: sandbox_network_denied:adder:connect:http://localhost:[0-9]+/mcp"),
    ("the host", "the operator, on the command line: done: mcp:adder may .* .exit code 0."),
    ("mcp:adder", "2 \\+ 3 = 5"),
    ("task:notes", "asked: not_enabled"),
    ("the host", "the operator, for session: .*session_key_required.*exit code 64.*"),
    ("the host", "the operator, for permanent: done: module:notes may .* .exit code 0."),
    ("task:notes", "asked again: permanent_approval"),
    ("module:notes", "cat today.txt: exit code 0, Meet at noon."),
    ("module:notes", "cat customer.csv: exit code 1, .*Permission denied"),
]
# The resumed import and the command that approved it end in either order.
BETWEEN = [
    ("module:notes", "resumed for user 7: ada,1815"),
    ("the host", "the command line said: done: module:notes may .* .exit code 0."),
]


@pytest.mark.needs("landlock", "seccomp")
def test_the_example_goes_through_all_of_its_steps(repo: Path) -> None:
    pytest.importorskip("mcp")
    done = subprocess.run(
        [sys.executable, str(repo / "examples/host.py")],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^  \[([^\]]+)\] (.*)$", done.stdout, re.MULTILINE)
    found = found[:4] + found[6:] + sorted(found[4:6])
    for (who, what), (chain, pattern) in zip(found, EXPECTED + BETWEEN, strict=True):
        assert who == chain, done.stdout
        assert re.fullmatch(pattern, what), done.stdout
