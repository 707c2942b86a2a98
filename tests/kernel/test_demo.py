"""The demo shows what it promises, on this kernel."""

from __future__ import annotations

import pytest
from command_line import osguard


@pytest.mark.needs("landlock", "seccomp")
def test_the_demo_allows_one_act_refuses_three_and_says_why() -> None:
    done = osguard("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("free      works") == 4
    assert done.stdout.count("            works") == 1
    assert done.stdout.count("            refused: ") == 3
    assert done.stdout.count("  why       no rule of module:demo covers ") == 3
    assert "MISMATCH" not in done.stdout
