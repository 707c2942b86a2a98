"""The broker asks programs as the kernel would: compared with the tests' own interpreter."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.launcher.bpf_machine import run
from unit.launcher.test_launcher_bpf import MACHINES

from democrai_osguard_launcher import bpf, seccomp
from democrai_osguard_launcher.bpf_evaluation import Evaluation, refusal

REGISTERS = st.tuples(*[st.integers(0, 2**64 - 1)] * 6)
KNOWN = [number for both in seccomp.NUMBERS.values() for number in both if number]
NUMBERS = st.one_of(st.integers(0, 500), st.sampled_from(KNOWN))
SOCKETS = st.sets(st.sampled_from(sorted(seccomp.SOCKETS)))


@pytest.mark.parametrize("machine", MACHINES)
@given(number=NUMBERS, registers=REGISTERS, sockets=SOCKETS)
def test_it_agrees_with_an_interpreter(
    machine: str, number: int, registers: tuple[int, ...], sockets: set[str]
) -> None:
    architecture = seccomp.ARCHITECTURES[machine]
    kinds = ("create", "delete", "metadata")
    programs = (
        seccomp.argument_program(machine, sockets, truncate_is_seen=False, brokered=kinds[1:]),
        seccomp.broker_program(machine, kinds),
    )
    for program in programs:
        wanted = run(program, number, *registers, architecture=architecture)
        assert Evaluation(program, architecture).action(number, registers) == wanted


def test_only_a_refusal_has_an_errno() -> None:
    assert refusal(bpf.errno_action(errno.EACCES)) == errno.EACCES
    assert [refusal(each) for each in (bpf.ALLOW, bpf.NOTIFY, bpf.KILL_PROCESS)] == [None] * 3


@pytest.mark.parametrize("machine", MACHINES)
def test_left_out_calls_are_judged_by_the_whole_program_only(machine: str) -> None:
    whole = seccomp.argument_program(machine, (), truncate_is_seen=True)
    rest = seccomp.argument_program(
        machine, (), truncate_is_seen=True, left_out=seccomp.TRACED_CALLS
    )
    number = seccomp.NUMBERS["socket"][MACHINES.index(machine)]
    assert number is not None
    architecture = seccomp.ARCHITECTURES[machine]
    assert refusal(run(whole, number, 2, os.O_RDONLY, architecture=architecture)) == errno.EACCES
    assert run(rest, number, 2, os.O_RDONLY, architecture=architecture) == bpf.ALLOW
