"""Every way out, tried in the machine, layer by layer; what was seen is kept for the report."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from vm.machine import Machine
    from vm.machine_operator import Operator

KEPT = Path(os.environ.get("DEMOCRAI_VM_ESCAPES", "build/vm/escapes"))
SEEN = "/var/lib/escapes"
SIGNALS = 6  # from this ABI on Landlock sees them


def test_together_the_layers_stop_every_way_out_of_this_kernel(
    operator: Operator, python: str, abi: int, show: Callable[[str], object]
) -> None:
    # On the disk: /tmp may be in memory, where files have less that could be changed.
    words = f"TMPDIR=/var/tmp {python} tests/escapes/report.py {SEEN}"
    tried = operator.machine.start(f"cd ~/work && {words}")
    assert operator.machine.follow(tried, show).code == 0
    seen = kept(operator.machine)
    assert seen["host"]["landlock"] == abi
    held = [row for row in seen["rows"] if row["suite"] in {"kernel", "operation", "egress"}]
    assert len(held) > 150
    left = [row["name"] for row in held if row["layers"]["together"] == "allowed"]
    assert [name for name in left if abi >= SIGNALS or "signal" not in name] == []


def kept(machine: Machine) -> dict[str, Any]:
    """Copy what was seen out of the machine; return it."""
    name = machine.must_succeed(f"ls {SEEN}").strip()
    text = machine.must_succeed(f"cat {SEEN}/{name}")
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / name).write_text(text, encoding="utf-8")
    read: dict[str, Any] = json.loads(text)
    return read
