"""The second look at a program alone: no code of a file that the loader maps has run by then."""

# ruff: noqa: S606 - starting programs is the act itself

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import in_a_fork, plan_for, prctl
from kernel.techniques import LIBC
from kernel.test_broker_starting import LOADER, TRUE, outcome

from democrai_osguard_launcher import seccomp
from democrai_osguard_launcher.broker import Broker
from democrai_osguard_launcher.brokered import Descriptor, GoOn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Free

    from democrai_osguard_launcher.broker import Roots
    from democrai_osguard_launcher.caller import Call
    from democrai_osguard_launcher.plan import Plan

pytestmark = [
    pytest.mark.needs("landlock", "landlock-truncate", "seccomp", "gcc"),
    pytest.mark.skipif(not os.path.exists(LOADER), reason="another loader, another machine"),
]

# Code that a loader runs at different times: as soon as it audits, when it relocates, when it
# initialises, and last the program itself.
LIBRARY = """
#include <sys/stat.h>
__attribute__((constructor)) static void begin(void) { mkdir(MADE, 0700); }
unsigned la_version(unsigned version) { mkdir(MADE, 0700); return version; }
"""
RELOCATED = """
#include <sys/syscall.h>
static void made(void) {
  long result;
  __asm__ volatile("syscall" : "=a"(result)
    : "a"(SYS_mkdir), "D"(MADE), "S"(0700) : "rcx", "r11", "memory");
}
static int one(void) { return 0; }
static int (*choose(void))(void) { made(); return one; }
int chosen(void) __attribute__((ifunc("choose")));
int main(void) { return chosen(); }
"""


class CarelessBroker(Broker):
    """Does not look at what shall be started."""

    def answer(self, name: str, call: Call) -> int | Descriptor | None:
        if name in {"execve", "execveat"}:
            raise GoOn
        return super().answer(name, call)


class Careless:
    """Who looks on outside, and overlooks the first half."""

    waiting = "create"

    def __init__(self, file: int) -> None:
        self.file = file

    def begin(self, command: int) -> None:
        del command

    def make_broker(self, plan: Plan, roots: Roots, listener: int) -> Broker:
        del plan
        return CarelessBroker(roots, listener, seccomp.brokered_numbers(os.uname().machine))


def build(at: Path, text: str, *options: str) -> Path:
    source, built = at / "source.c", at / "built"
    source.write_text(text)
    define = f'-DMADE="{at / "made"}"'
    subprocess.run(["gcc", define, *options, "-o", str(built), str(source)], check=True)
    return built


def library(at: Path) -> str:
    return str(build(at, LIBRARY, "-shared", "-fPIC"))


WAYS: dict[str, Callable[[Path], tuple[list[str], dict[str, str]]]] = {
    "a program": lambda at: ([LOADER, "/usr/bin/mkdir", str(at / "made")], {}),
    "a library that comes first": lambda at: ([LOADER, "--preload", library(at), TRUE], {}),
    "one in the environment": lambda at: ([LOADER, TRUE], {"LD_PRELOAD": library(at)}),
    "a library that audits": lambda at: ([LOADER, "--audit", library(at), TRUE], {}),
    "an auditor in the environment": lambda at: ([LOADER, TRUE], {"LD_AUDIT": library(at)}),
    "code that chooses code": lambda at: ([LOADER, str(build(at, RELOCATED))], {}),
    "the same at once": lambda at: ([LOADER, str(build(at, RELOCATED, "-Wl,-z,now"))], {}),
}


@pytest.mark.always
@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_what_is_mapped_has_run(way: str, tmp_path: Path, free: Free) -> None:
    words, environment = WAYS[way](tmp_path)
    made = tmp_path / "made"

    def start() -> int:
        return outcome(lambda: os.execve(LOADER, words, environment))

    def killed() -> None:
        code = start()
        assert code == -signal.SIGKILL, code

    with open(os.devnull, "rb") as nothing:
        plan = plan_for([("create", tmp_path), ("read", tmp_path), ("read", "/usr/bin")])
        assert in_a_fork(killed, plan, companion=Careless(nothing.fileno())) == "allowed"
    assert not made.exists()
    assert free(lambda: made.exists() or start()) == "allowed"
    assert made.is_dir()


ARCH_PRCTL, SET_TID_ADDRESS = 158, 218
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
ALLOWED, ANSWERED, ENOSYS = 0x7FFF0000, 0x50000, 38


def answer_oneself(number: int, code: int) -> None:
    """Load a filter that answers a call before anybody else is asked about it."""
    lines = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, ANSWERED | code), (6, 0, 0, ALLOWED))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    whole = ctypes.create_string_buffer(struct.pack("HP", len(lines), ctypes.addressof(program)))
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if LIBC.prctl(PR_SET_SECCOMP, FILTER, whole, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter")


@pytest.mark.parametrize("code", [0, ENOSYS])
@pytest.mark.parametrize("way", WAYS)
def test_a_loader_cannot_do_without_the_call_that_is_looked_at(
    way: str, code: int, tmp_path: Path, free: Free
) -> None:
    words, environment = WAYS[way](tmp_path)
    made = tmp_path / "made"

    def start(call: int) -> int:
        def act() -> None:
            answer_oneself(call, code)
            os.execve(LOADER, words, environment)

        return outcome(act)

    def ended() -> None:
        assert start(ARCH_PRCTL), "it ran to its end"

    with open(os.devnull, "rb") as nothing:
        plan = plan_for([("create", tmp_path), ("read", tmp_path), ("read", "/usr/bin")])
        assert in_a_fork(ended, plan, companion=Careless(nothing.fileno())) == "allowed"
    assert not made.exists()
    # Another call it can do without.
    assert free(lambda: start(SET_TID_ADDRESS)) == "allowed"
    assert made.is_dir()
