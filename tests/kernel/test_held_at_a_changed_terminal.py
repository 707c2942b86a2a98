"""A command that has the terminal on which people answer for it gives no answer there itself."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from kernel.test_held_at_a_terminal import SUPERVISED, screen

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.test_held_at_a_terminal import Open

    from democrai_osguard.approvals.service import ApprovalService

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

__all__ = ["screen"]

PYTHON = (
    *("--read", sys.prefix, "--read", sys.base_prefix, "--execute", sys.executable),
    *("--", sys.executable, "-I", "-S", "-c"),
)
ASKING = """
import os, termios, threading, time

def read():
    try:
        print(open("file").read())
    except OSError as error:
        print(error)

def change(modes, **keys):
    modes[3] &= ~keys.pop("flags", 0)
    for name, key in keys.items():
        modes[6][getattr(termios, name)] = key
    termios.tcsetattr(1, termios.TCSANOW, modes)

reading = threading.Thread(target=read)
reading.start()
while not os.path.exists("../go"):
    time.sleep(0.1)
change(termios.tcgetattr(1), {change})
os.write(1, {say})
reading.join()
"""
# Terminals of today answer the question who they are: ESC P > | name ESC \
WHO, NAME = "\x1b[>q", "\x1bP>|XTerm(390)\x1b\\"
WAYS = {
    "the terminal's name, to a key that ends a line": ('VKILL=b"\\033", VEOL=b">"', WHO, NAME),
    "the terminal's name, to a key that ends all": ('VKILL=b"\\033", VEOF=b">"', WHO, NAME),
    "a no, whose beginning takes back": ('VKILL=b"n"', "no or yes?", "no\n"),
    "a key that was meant for the command": ("flags=termios.ICANON", "page or quit?", "p"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_terminal_that_the_command_has_changed_answers_nothing(
    way: str, service: ApprovalService, screen: Open, tmp_path: Path
) -> None:
    change, says, answer = WAYS[way]
    run = screen(*SUPERVISED, *PYTHON, ASKING.format(change=change, say=repr(says.encode())))
    run.wait_for("eny? ")
    (tmp_path / "go").touch()  # only now, so that nothing of it is older than the question
    run.wait_for(says)
    run.press(answer)
    run.wait_for("eny? ", 2)  # something was heard, and it was no answer
    assert service.list_decisions() == []
    assert [each.state for each in service.list_requests()] == ["pending"]
