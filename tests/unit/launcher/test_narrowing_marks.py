"""The mark of processes that have narrowed themselves: where there is none, everybody has."""

from __future__ import annotations

import subprocess
import sys

MARKS = """
import os, resource
from democrai_osguard_launcher.narrowing import Narrowing
{0}
narrowing = Narrowing()
before = narrowing.concerns(os.getpid())
{1}
print(before, narrowing.concerns(os.getpid()), narrowing.concerns(os.getppid()))
"""


def said(before: str, begins: str) -> str:
    program = [sys.executable, "-c", MARKS.format(before, begins)]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout


def test_only_who_is_marked_is_narrowed() -> None:
    assert said("", "narrowing.begins(os.getpid())") == "False True False\n"


def test_where_no_mark_can_be_made_everybody_is_narrowed() -> None:
    unmarkable = "resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))"
    assert said(unmarkable, "narrowing.begins(os.getpid())") == "False True True\n"


def test_who_died_before_narrows_nobody() -> None:
    dead = "narrowing.begins(2**31 - 1)"
    assert said("", dead) == "False False False\n"
