"""What the operator reads: once, never too much, and never at the cost of the daemon."""

from __future__ import annotations

import os
import subprocess
import sys

from democrai_osguard_helper.diary import AGAIN_SECONDS, MAX_REMEMBERED, PER_MINUTE, Diary


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_goes_on_is_said_once_in_a_while() -> None:
    clock, lines = Clock(), list[str]()
    diary = Diary(clock, lines.append)
    for _ in range(3):
        diary.say("drift: again")
    diary.say("repaired: it holds")
    clock.now += AGAIN_SECONDS
    diary.say("drift: again")
    assert lines == ["drift: again", "repaired: it holds", "drift: again"]


def test_a_flood_is_cut_and_goes_on_later() -> None:
    clock, lines = Clock(), list[str]()
    diary = Diary(clock, lines.append)
    for number in range(10 * PER_MINUTE):
        diary.say(f"name_failed: {number}")
    assert len(lines) == PER_MINUTE + 1
    assert "left out" in lines[-1]
    clock.now += AGAIN_SECONDS
    for number in range(4 * MAX_REMEMBERED):
        diary.say(f"later: {number}")
    assert lines[PER_MINUTE + 1] == "later: 0"
    assert len(lines) == 2 * (PER_MINUTE + 1)


_WRITES = """
import itertools, sys
sys.path.insert(0, sys.argv[1])
from democrai_osguard_helper.diary import Diary
diary = Diary(itertools.count(step=100.0).__next__)
for number in range(1000):
    diary.say(f"{number} " + "x" * 900 + chr(27) + "\\n[31m")
print("done")
"""


def test_nobody_who_reads_holds_nobody_up() -> None:
    reader, writer = os.pipe()
    try:
        helper = os.path.dirname(os.path.dirname(sys.modules[Diary.__module__].__file__ or ""))
        done = subprocess.run(
            [sys.executable, "-I", "-c", _WRITES, helper],
            stderr=writer, stdout=subprocess.PIPE, timeout=60, check=True,
        )  # fmt: skip
        assert done.stdout == b"done\n"
        first, _, _ = os.read(reader, 4096).partition(b"\n")
        assert first.startswith(b"democrai-osguard-helper: 0 xxx")
        assert b"\x1b" not in first
    finally:
        os.close(reader)
        os.close(writer)
