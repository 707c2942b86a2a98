"""Lists of calls: what the machine makes of them, and that it is built from its source."""

from __future__ import annotations

import errno
import os
import runpy
import signal
from typing import TYPE_CHECKING

import pytest
from host_features import lack, require

from democrai_osguard_launcher import kernel
from democrai_osguard_launcher.steps import (
    ANYTHING,
    LARGEST,
    OWN_WORD,
    SUCCESS,
    Draft,
    Word,
    machine_code,
)
from democrai_osguard_launcher.trial import HERE

if TYPE_CHECKING:
    from pathlib import Path

    from democrai_osguard_launcher.steps import Steps

MACHINES = ("x86_64", "aarch64")
SHARING = 0x100 | 0x4000 | signal.SIGCHLD  # until the child has another program, or has ended
NO_SUCH = 1 << 20  # a descriptor


@pytest.fixture
def code() -> kernel.Code:
    found = machine_code()
    if found is None:
        lack("machine code of the launcher")
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_the_code_is_built_from_its_source(repo: Path, machine: str) -> None:
    require(f"assembler-{machine}")
    builder = runpy.run_path(str(repo / "launcher/build_steps.py"))
    checked_in = repo / f"launcher/democrai_osguard_launcher/steps_{machine}.bin"
    assert builder["build"](machine) == checked_in.read_bytes()


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernel(machine: str) -> None:
    pyseccomp = pytest.importorskip("pyseccomp")
    architecture = getattr(pyseccomp.Arch, machine.upper())
    for name, numbers in kernel.NUMBERS.items():
        known = pyseccomp.resolve_syscall(architecture, name)
        assert known in {numbers[MACHINES.index(machine)], -1}, name


def last(draft: Draft) -> int:
    return draft.add("getpid", answers=0)


def test_each_step_follows_the_one_before(code: kernel.Code) -> None:
    reader, writer = os.pipe()
    draft = Draft()
    for word in (b"one ", b"two"):
        draft.add("dup3", writer, writer, 0, answers=1 << errno.EINVAL)
        draft.add("write", writer, word, len(word))
    end = last(draft)
    steps = draft.seal()
    assert steps.carry_out(code) == 0
    os.close(writer)
    assert (os.read(reader, 64), steps.reached) == (b"one two", end)
    os.close(reader)


@pytest.mark.parametrize(
    ("answers", "goes_on"),
    [
        (SUCCESS, False),
        (1 << errno.EBADF, True),
        (ANYTHING, True),
        (ANYTHING & ~(1 << errno.EBADF), False),
        (0, False),
    ],
)
def test_only_the_right_answer_goes_on(code: kernel.Code, answers: int, *, goes_on: bool) -> None:
    draft = Draft()
    draft.add("close", NO_SUCH, answers=answers)
    end = last(draft)
    steps = draft.seal()
    steps.carry_out(code)
    assert (steps.reached, steps.answer(0)) == (end if goes_on else 0, errno.EBADF)


def test_a_large_errno_has_the_last_bit(code: kernel.Code) -> None:
    for answers, reached in ((1 << LARGEST, 1), (ANYTHING >> 1, 0)):
        draft = Draft()
        draft.add("socketpair", 1, 1, 250, bytes(8), answers=answers)  # no such protocol
        last(draft)
        steps = draft.seal()
        steps.carry_out(code)
        assert steps.answer(0) == errno.EPROTONOSUPPORT
        assert steps.reached == reached


def test_an_answer_is_passed_on_and_a_failure_skips(code: kernel.Code, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    before = os.listdir("/proc/self/fd")
    draft = Draft()
    for name in ("missing", "there"):
        path = os.fsencode(tmp_path / name) + b"\0"
        opened = draft.add("openat", HERE, path, os.O_PATH, answers=ANYTHING)
        draft.pass_on(opened, draft.add("close", NO_SUCH))
        draft.skip_after_failure(opened)
    end = last(draft)
    steps = draft.seal()
    for _ in range(2):
        steps.carry_out(code)
        assert (steps.reached, steps.answer(0), steps.answer(2)) == (end, errno.ENOENT, 0)
    assert os.listdir("/proc/self/fd") == before


def test_a_call_reads_and_writes_beside_the_steps(code: kernel.Code) -> None:
    reader, writer = os.pipe()
    draft = Draft()
    room = draft.reserve(8)
    named = draft.add("getpid", own=int.from_bytes(b"by word!", "little"))
    draft.add("write", writer, Word(named, OWN_WORD), 8)
    draft.add("read", reader, room, 8)
    end = last(draft)
    steps = draft.seal()
    steps.carry_out(code)
    for each in (reader, writer):
        os.close(each)
    assert (steps.reached, bytes(steps.room)) == (end, b"by word!")


def ended(steps: Steps, code: kernel.Code) -> int:
    child = steps.carry_out(code)
    assert child > 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_becomes_another_program(code: kernel.Code) -> None:
    draft = Draft()
    words, variables = (b"sh\0", b"-c\0", b"exit $CODE\0", 0), (b"CODE=7\0", 0)
    become = draft.add("execve", b"/bin/sh\0", words, variables, answers=0)
    steps = draft.seal(SHARING)
    assert (ended(steps, code), steps.reached, steps.answer(become)) == (7, become, 0)


def test_a_child_ends_at_the_first_wrong_answer(code: kernel.Code) -> None:
    draft = Draft()
    wrong = draft.add("close", NO_SUCH)
    become = draft.add("execve", b"/bin/true\0", (b"true\0", 0), (0,), answers=0)
    steps = draft.seal(SHARING)
    assert (ended(steps, code), steps.reached, steps.answer(wrong)) == (125, wrong, errno.EBADF)
    assert steps.answer(become) == 0


def test_a_child_that_cannot_become_the_program_ends(code: kernel.Code) -> None:
    draft = Draft()
    become = draft.add("execve", b"/no/such\0", (b"true\0", 0), (0,), answers=0)
    steps = draft.seal(SHARING)
    assert (ended(steps, code), steps.answer(become)) == (125, errno.ENOENT)
    steps.forget(become)
    assert steps.answer(become) == 0


def test_a_child_has_descriptors_of_its_own(code: kernel.Code) -> None:
    reader, writer = os.pipe()
    draft = Draft()
    draft.add("close", reader)
    draft.add("close", writer, answers=0)
    assert ended(draft.seal(SHARING), code) == 125
    os.write(writer, b"x")
    assert os.read(reader, 1) == b"x"
    for each in (reader, writer):
        os.close(each)


def test_too_much_is_refused_before_anything_runs() -> None:
    draft = Draft()
    with pytest.raises(ValueError, match="arguments"):
        draft.add("statx", 1, 2, 3, 4, 5, 6)
    first = draft.add("getpid")
    with pytest.raises(KeyError):
        draft.add("no such call")
    for _ in range(2):
        draft.pass_on(first, first)
    with pytest.raises(ValueError, match="wanted"):
        draft.pass_on(first, first)
