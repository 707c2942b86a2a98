"""The BPF programs, run in a small interpreter and compared with the policy that they come from."""

from __future__ import annotations

import errno
import json
import os
import runpy
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from unit.launcher.bpf_machine import run

from democrai_osguard_launcher import bpf, enforcement, seccomp, stored_programs
from democrai_osguard_launcher.handlers import HANDLERS
from democrai_osguard_launcher.looking import LOOK_HANDLERS
from democrai_osguard_launcher.plan import Facts, make_plan
from democrai_osguard_launcher.rules import Rule
from democrai_osguard_launcher.sights import SIGHTS

ALLOW, KILL = bpf.ALLOW, bpf.KILL_PROCESS
EPERM, EACCES = (bpf.errno_action(code) for code in (errno.EPERM, errno.EACCES))
ENOSYS = bpf.errno_action(errno.ENOSYS)
MACHINES = tuple(seccomp.ARCHITECTURES)
POLICY_FILE = Path(seccomp.__file__).with_name("seccomp_policy.json")
REGISTER = st.integers(min_value=0, max_value=2**64 - 1)


def arguments_verdict(
    machine: str, call: str, *arguments: int, sockets: tuple[str, ...] = (), truncate: bool = True
) -> int:
    program = seccomp.argument_program(machine, sockets, truncate_is_seen=truncate)
    number = seccomp.NUMBERS[call][MACHINES.index(machine)]
    assert number is not None
    return run(program, number, *arguments, architecture=seccomp.ARCHITECTURES[machine])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", ["calls", "arguments", "waiting"])
def test_another_architecture_is_killed(machine: str, kind: str) -> None:
    program = programs(machine)[kind]
    other = next(seccomp.ARCHITECTURES[name] for name in MACHINES if name != machine)
    for foreign in (other, 0x40000003, 0):  # the second is i386
        assert run(program, 1, architecture=foreign) == KILL


@pytest.mark.parametrize("kind", ["calls", "arguments", "waiting"])
@given(number=st.integers(min_value=0, max_value=0x3FFFFFFF))
def test_every_x32_number_is_killed(kind: str, number: int) -> None:
    program = programs("x86_64")[kind]
    x86_64 = seccomp.ARCHITECTURES["x86_64"]
    assert run(program, number | 0x40000000, architecture=x86_64) == KILL


def programs(machine: str) -> dict[str, bytes]:
    return {
        "calls": stored_programs.call_program(machine),
        "arguments": seccomp.argument_program(machine, (), truncate_is_seen=True),
        "waiting": seccomp.broker_program(machine, ("create", "delete", "look", "metadata")),
    }


def policy() -> dict[str, Any]:
    document = json.loads(POLICY_FILE.read_text())
    assert isinstance(document, dict)
    return document


def listed(section: str) -> list[str]:
    return [call for line in policy()[section] for call in line["calls"]]


def test_every_line_of_the_policy_has_a_reason_and_every_call_one_place() -> None:
    sections = ("allow", "refuse", "absent", "kill")
    lines = [line for section in sections for line in policy()[section]]
    assert all(line["why"] and line["calls"] for line in lines)
    calls = [call for section in sections for call in listed(section)]
    assert len(calls) == len(set(calls))


@given(upper=st.integers(min_value=0, max_value=2**32 - 1))
def test_a_request_is_refused_whatever_the_upper_half_says(upper: int) -> None:
    for request in seccomp.REFUSED_REQUESTS:
        assert arguments_verdict("x86_64", "ioctl", 0, upper << 32 | request) == EPERM


@given(request=REGISTER)
def test_other_requests_pass(request: int) -> None:
    expected = EPERM if request & 0xFFFFFFFF in seccomp.REFUSED_REQUESTS else ALLOW
    assert arguments_verdict("x86_64", "ioctl", 0, request) == expected


@pytest.mark.parametrize("machine", MACHINES)
@given(command=st.one_of(st.integers(0, 2000), REGISTER), upper=st.integers(0, 2**32 - 1))
def test_nobody_takes_a_lease(machine: str, command: int, upper: int) -> None:
    expected = EPERM if command & 0xFFFFFFFF in {1024, 1040} else ALLOW
    assert arguments_verdict(machine, "fcntl", 0, upper << 32 | command & 0xFFFFFFFF) == expected
    assert arguments_verdict(machine, "fcntl", 0, upper << 32 | 1024) == EPERM


@given(flags=REGISTER)
def test_clone_never_makes_a_namespace(flags: int) -> None:
    namespaces = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000
    namespaces |= 0x40000000
    expected = EPERM if flags & namespaces else ALLOW
    assert arguments_verdict("x86_64", "clone", flags) == expected


@given(flags=REGISTER)
def test_a_memory_file_is_never_executable(flags: int) -> None:
    assert arguments_verdict("aarch64", "memfd_create", 0, flags) == (ALLOW if flags & 8 else EPERM)


@given(flags=REGISTER)
def test_nothing_connects_while_it_sends(flags: int) -> None:
    for call, place in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        arguments = [0] * place + [flags]
        expected = EPERM if flags & 0x20000000 else ALLOW
        assert arguments_verdict("x86_64", call, *arguments) == expected


def may_open(sockets: tuple[str, ...], family: int, kind: int, protocol: int) -> bool:
    """Say by the words of the plan, not by its tables, whether a socket is open."""
    kind &= 0xF
    internet = family in {2, 10}
    return (
        ("unix" in sockets and family == 1)
        or ("tcp" in sockets and internet and kind == 1 and protocol in {0, 6})
        or ("udp" in sockets and internet and kind == 2 and protocol in {0, 17})
        or ("netlink route" in sockets and family == 16 and protocol == 0)
    )


INTERESTING = {
    "families": st.one_of(st.sampled_from([1, 2, 10, 16, 17, 38, 40]), st.integers(0, 2**32 - 1)),
    "kinds": st.one_of(st.integers(0, 15), st.integers(0, 2**32 - 1)),
    "protocols": st.one_of(st.sampled_from([0, 1, 6, 17, 58, 132, 136, 262]), st.integers(0, 300)),
}


@given(
    machine=st.sampled_from(MACHINES),
    sockets=st.sets(st.sampled_from(tuple(seccomp.SOCKETS))),
    arguments=st.tuples(*INTERESTING.values()),
    upper=st.integers(0, 2**32 - 1),
)
def test_a_socket_opens_as_the_plan_says(
    machine: str, sockets: set[str], arguments: tuple[int, ...], upper: int
) -> None:
    names = tuple(sorted(sockets))
    registers = (upper << 32 | value for value in arguments)
    family, kind, protocol = arguments
    expected = ALLOW if may_open(names, family, kind, protocol) else EACCES
    assert arguments_verdict(machine, "socket", *registers, sockets=names) == expected


JOINS = {0: {35, 37, 38, 39, 41, 42, 43, 44, 46, 48}, 41: {20, 27, 42, 43, 44, 46, 48}}
LINKS = {0: {50}, 1: {25, 62}, 41: {2, 50, 76}}


@pytest.mark.parametrize("sockets", [("tcp",), ("udp",), ("unix", "tcp", "udp", "netlink route")])
@given(level=st.sampled_from([0, 1, 6, 17, 41]), upper=st.integers(0, 2**32 - 1))
def test_no_socket_joins_a_group_or_chooses_a_link(
    sockets: tuple[str, ...], level: int, upper: int
) -> None:
    program = seccomp.argument_program("x86_64", sockets, truncate_is_seen=True)
    number, architecture = seccomp.NUMBERS["setsockopt"][0], seccomp.ARCHITECTURES["x86_64"]
    assert number is not None
    refused = JOINS.get(level, set()) | LINKS.get(level, set())
    for option in range(80):
        registers = upper << 32 | level, upper << 32 | option
        verdict = run(program, number, 0, *registers, architecture=architecture)
        assert verdict == (EPERM if option in refused else ALLOW), option


def test_where_addresses_are_judged_no_route_leads_past_them() -> None:
    program = seccomp.argument_program(
        "aarch64", ("tcp", "udp"), truncate_is_seen=True, brokered=("connect",)
    )
    number, architecture = seccomp.NUMBERS["setsockopt"][1], seccomp.ARCHITECTURES["aarch64"]
    assert number is not None
    for level, option in ((0, 4), (0, 35), (41, 5), (41, 6), (41, 57), (41, 20)):
        assert run(program, number, 0, level, option, architecture=architecture) == EPERM
    assert run(program, number, 0, 0, 1, architecture=architecture) == ALLOW


@pytest.mark.parametrize("call", seccomp.METADATA_CALLS)
def test_metadata_stays_as_it_is(call: str) -> None:
    assert arguments_verdict("x86_64", call) == EPERM


@given(flags=st.integers(0, 2**24))
def test_where_landlock_is_blind_to_it_reading_does_not_empty(flags: int) -> None:
    flags = flags & ~3 if flags & 3 == 3 else flags
    empties = flags & 0x200 and not flags & 3
    for call, place in (("open", 1), ("openat", 2)):
        arguments = [0] * place + [flags]
        assert arguments_verdict("x86_64", call, *arguments) == ALLOW
        verdict = arguments_verdict("x86_64", call, *arguments, truncate=False)
        assert verdict == (EACCES if empties else ALLOW)


@given(flags=st.integers(0, 2**24), upper=st.integers(0, 2**32 - 1))
@example(flags=3, upper=0)
@example(flags=3 | os.O_PATH, upper=0)
def test_nothing_is_opened_neither_to_read_nor_to_write(flags: int, upper: int) -> None:
    for_nothing = flags & 3 == 3 and not flags & os.O_PATH
    for call, place in (("open", 1), ("openat", 2)):
        verdict = arguments_verdict("x86_64", call, *[0] * place, upper << 32 | flags)
        assert verdict == (EACCES if for_nothing else ALLOW)


@pytest.mark.parametrize("machine", MACHINES)
def test_only_a_unix_socket_listens(machine: str) -> None:
    """A filter cannot tell whose socket it is: where both exist, the broker must, or none does."""
    place = MACHINES.index(machine)
    number, architecture = seccomp.NUMBERS["listen"][place], seccomp.ARCHITECTURES[machine]
    assert number is not None

    def verdict(*sockets: str, listens: bool, brokered: tuple[str, ...] = ()) -> int:
        program = seccomp.argument_program(
            machine, sockets, truncate_is_seen=True, brokered=brokered, listens=listens
        )
        return run(program, number, 3, 16, architecture=architecture)

    assert verdict("tcp", listens=True) == EACCES
    assert verdict("unix", "tcp", listens=False) == EACCES
    assert verdict("unix", "tcp", listens=False, brokered=("socket paths",)) == ALLOW
    assert verdict("unix", listens=True) == ALLOW


@pytest.mark.parametrize("abi", [8, 9, 10])
def test_who_is_held_by_the_helper_listens_nowhere(abi: int) -> None:
    """Whoever comes to a listener is answered by the helper, and Landlock sees no bind."""
    facts = Facts(abi, seccomp=True, notifications=True, kinds={}, programs={}, helper=True)
    plan = make_plan([Rule("network", "connect", "192.0.2.1:443")], facts)
    assert plan.by_address
    machine = os.uname().machine
    number = seccomp.NUMBERS["listen"][MACHINES.index(machine)]
    assert number is not None
    program = enforcement.argument_program(plan, plan.brokered)
    assert run(program, number, 3, 16, architecture=seccomp.ARCHITECTURES[machine]) == EACCES


def test_calls_that_no_block_names_pass_the_argument_program() -> None:
    looked_at = {numbers[0] for numbers in seccomp.NUMBERS.values()}
    program = seccomp.argument_program("x86_64", (), truncate_is_seen=False)
    for number in set(range(600)) - looked_at:
        assert run(program, number, architecture=seccomp.ARCHITECTURES["x86_64"]) == ALLOW


HOT = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62),
    "mmap": (9, 222), "getdents64": (217, 61), "newfstatat": (262, 79), "statx": (332, 291),
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", HOT)
def test_what_programs_do_most_is_answered_by_its_number_alone(call: str, machine: str) -> None:
    """The kernel keeps such an answer in a table, and runs no program for it any more."""
    architecture = seccomp.ARCHITECTURES[machine]
    every = {
        **programs(machine),
        "waiting": seccomp.broker_program(machine, ("create", "delete", "metadata", "connect")),
    }
    number = HOT[call][MACHINES.index(machine)]
    for program in every.values():
        assert run(program, number, architecture=architecture, blind=True) == ALLOW
    opening = seccomp.NUMBERS["openat"][MACHINES.index(machine)]
    assert opening is not None
    with pytest.raises(struct.error):
        run(every["arguments"], opening, architecture=architecture, blind=True)


WAITING = (
    "create", "delete", "delete folder", "look", "metadata", "connect", "socket paths", "names",
    seccomp.TRACE, seccomp.HELD,
)  # fmt: skip
WAITING_ARGUMENTS = {
    "open": [0, 0x40, 0o644],
    "openat": [0, 0, 0x40, 0o644],
    "arch_prctl": [0x1002],
}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_brokered_call_waits_and_is_refused_by_no_other_program(machine: str) -> None:
    kinds = ("create", "delete", "look", "metadata", "connect", "names")
    waiting = seccomp.broker_program(machine, kinds)
    arguments = seccomp.argument_program(machine, ("unix",), truncate_is_seen=True, brokered=kinds)
    architecture = seccomp.ARCHITECTURES[machine]
    names = {name: number for number, name in seccomp.brokered_numbers(machine).items()}
    for name in HANDLERS.keys() & names.keys():
        registers = WAITING_ARGUMENTS.get(name, [])
        assert run(waiting, names[name], *registers, architecture=architecture) == bpf.NOTIFY, name
        assert run(arguments, names[name], *registers, architecture=architecture) == ALLOW, name


@given(machine=st.sampled_from(MACHINES), kind=st.sampled_from(WAITING), flags=REGISTER)
def test_where_calls_wait_nobody_else_listens(machine: str, kind: str, flags: int) -> None:
    number = seccomp.NUMBERS["seccomp"][MACHINES.index(machine)]
    assert number is not None
    waiting = seccomp.broker_program(machine, (kind,))
    for asked in (flags & ~8, flags | 8):
        verdict = run(waiting, number, 1, asked, architecture=seccomp.ARCHITECTURES[machine])
        assert verdict == (EPERM if asked & 8 else ALLOW)


def test_every_call_that_looks_has_an_answer() -> None:
    assert set(seccomp.LOOKING_CALLS) == LOOK_HANDLERS.keys()
    assert SIGHTS.keys() == LOOK_HANDLERS.keys() - {"fstat", "fstatfs"}


@given(flags=st.integers(0, 2**24))
def test_only_opening_that_creates_waits(flags: int) -> None:
    program = seccomp.broker_program("x86_64", ("create",))
    expected = bpf.NOTIFY if flags & 0x40 else ALLOW
    for call, place in (("open", 1), ("openat", 2)):
        number = seccomp.NUMBERS[call][0]
        assert number is not None
        arguments = [0] * place + [flags]
        verdict = run(program, number, *arguments, architecture=seccomp.ARCHITECTURES["x86_64"])
        assert verdict == expected


@pytest.mark.parametrize("call", ["mknod", "creat", "open", "openat", "mknodat"])
@given(bits=st.sampled_from([0o4000, 0o2000, 0o6000]), mode=st.integers(0, 0o1777))
def test_no_file_is_made_that_lends_rights(call: str, bits: int, mode: int) -> None:
    places = {"mknod": 1, "creat": 1, "open": 2, "openat": 3, "mknodat": 2}
    place = places[call]
    for flags in (os.O_CREAT, os.O_TMPFILE | os.O_RDWR) if "open" in call else (0,):
        arguments = [0] * (place - 1) + [flags]
        assert arguments_verdict("x86_64", call, *arguments, mode) == ALLOW
        assert arguments_verdict("x86_64", call, *arguments, mode | bits) in {EPERM, EACCES}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_checked_in_program_says_what_the_policy_says(machine: str) -> None:
    pyseccomp = pytest.importorskip("pyseccomp")
    architecture = getattr(pyseccomp.Arch, machine.upper())
    program = stored_programs.call_program(machine)
    expected = {"allow": ALLOW, "refuse": EPERM, "absent": ENOSYS, "kill": KILL}
    known = {}
    for section, action in expected.items():
        for call in listed(section):
            number = pyseccomp.resolve_syscall(architecture, call)
            if number >= 0:  # the others never existed on this architecture
                known[number] = action
    for number in range(1024):
        verdict = run(program, number, architecture=seccomp.ARCHITECTURES[machine])
        assert verdict == known.get(number, ENOSYS), number


def test_the_checked_in_programs_are_what_the_builder_builds(repo: Path) -> None:
    pytest.importorskip("pyseccomp")
    builder = runpy.run_path(str(repo / "launcher/build_seccomp.py"))
    for machine in MACHINES:
        assert builder["build"](machine, policy()) == stored_programs.call_program(machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("sockets", stored_programs.PLAIN_ARGUMENTS)
def test_the_stored_programs_are_those_that_would_be_assembled(
    machine: str, sockets: tuple[str, ...]
) -> None:
    assembled = seccomp.argument_program(machine, sockets, truncate_is_seen=True)
    assert stored_programs.argument_program(machine, sockets) == assembled


def test_there_are_stored_programs_for_every_machine_that_is_known() -> None:
    assert MACHINES == stored_programs.MACHINES
