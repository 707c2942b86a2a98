"""The interpreter of the tests and the kernel agree about the launcher's seccomp programs."""

from __future__ import annotations

import mmap
import os
import random
import struct
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from unit.launcher.bpf_machine import run

from democrai_osguard_launcher import bpf, seccomp, stored_programs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.needs("seccomp", "gcc"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the oracle speaks x86_64"),
]
MACHINE = "x86_64"
_RETURN = 0x06
_HEADER, _QUESTION = struct.Struct("<qqq"), struct.Struct("<q6qq")
_CASES = 4000
_NEVER_FILTERED = {
    335,
    336,
}  # uretprobe, uprobe: the kernel lets them past every filter
_SECONDS = 60
# Values that arguments are compared with, and their neighbours in either half.
_ODD = (0, 1, 2, 3, 9, 10, 16, 38, 40, 262, 0x5412, 0x5423, 0x541C, 0o1000, 0x10000000, 0x7E020000,
        -1, 2**31, 2**32, 2**32 + 1, 2**63)  # fmt: skip


def _harmless(program: bytes) -> tuple[bytes, dict[int, int]]:
    """Return the program with every verdict turned into an error number, and which is which."""
    verdicts: dict[int, int] = {}
    rewritten = b""
    for operation, if_true, if_false, operand in struct.iter_unpack("<HBBI", program):
        value = operand
        if operation == _RETURN:
            verdicts.setdefault(operand, 1000 + len(verdicts))
            value = bpf.errno_action(verdicts[operand])
        rewritten += struct.pack("<HBBI", operation, if_true, if_false, value)
    return rewritten, verdicts


def _questions(chance: random.Random) -> list[tuple[int, ...]]:
    return [(_number(chance), *(_argument(chance) for _ in range(6))) for _ in range(_CASES)]


def _argument(chance: random.Random) -> int:
    return chance.choice([chance.choice(_ODD), chance.getrandbits(64)])


def _number(chance: random.Random) -> int:
    known = [number for number in range(480) if number not in _NEVER_FILTERED]
    others = [chance.randrange(480, 2**30), 0x40000000 | chance.randrange(600)]
    return chance.choice([chance.choice(known), *others])


def _signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _asked(oracle: Path, program: bytes, questions: list[tuple[int, ...]]) -> list[int]:
    sheet = oracle.with_name("sheet")
    head = _HEADER.pack(len(program) // 8, len(questions), 0)
    body = b"".join(_QUESTION.pack(*map(_signed, question), 0) for question in questions)
    sheet.write_bytes(head + program + body)
    with sheet.open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
        process = subprocess.Popen([oracle, sheet])
        try:
            until = time.monotonic() + _SECONDS
            while not _HEADER.unpack_from(shared)[2]:
                assert process.poll() is None, f"the oracle ended: {process.returncode}"
                assert time.monotonic() < until, "the oracle does not answer"
                time.sleep(0.01)
            return [
                int(row[7]) for row in _QUESTION.iter_unpack(shared[len(head) + len(program) :])
            ]
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    made = tmp_path_factory.mktemp("oracle") / "oracle"
    source = pytestconfig.rootpath / "tests/fuzz/filter_oracle.c"
    subprocess.run(["gcc", "-O1", "-o", made, source], check=True)
    return made


PROGRAMS = {
    "calls": lambda: stored_programs.call_program(MACHINE),
    "arguments, nothing granted": lambda: seccomp.argument_program(
        MACHINE, (), truncate_is_seen=True
    ),
    "arguments, sockets granted": lambda: seccomp.argument_program(
        MACHINE, ("tcp", "udp", "unix", "netlink route"), truncate_is_seen=False
    ),
    "the broker's": lambda: seccomp.broker_program(MACHINE, ("create", "delete", "metadata")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kernel_says_what_the_interpreter_says(oracle: Path, name: str) -> None:
    program = PROGRAMS[name]()
    harmless, verdicts = _harmless(program)
    questions = _questions(random.Random(name))  # noqa: S311 - the same questions every time
    answers = _asked(oracle, harmless, questions)
    architecture = seccomp.ARCHITECTURES[MACHINE]
    for question, answer in zip(questions, answers, strict=True):
        number, *arguments = (value % 2**64 for value in question)
        said = run(program, number, *arguments, architecture=architecture)
        assert -answer == verdicts[said], (name, question)
    assert len({-answer for answer in answers}) > 1
