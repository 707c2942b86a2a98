"""The policy for container runtimes: its shape, and what libseccomp makes of it on each machine."""

from __future__ import annotations

import errno
import functools
import json
import tempfile
from typing import Any

import pytest
from command_line import osguard
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.launcher.bpf_machine import run

from democrai_osguard_launcher import bpf, oci_profile, seccomp, stored_programs

MACHINES = tuple(seccomp.ARCHITECTURES)
EVERY_SOCKET = tuple(seccomp.SOCKETS)
# What github.com/opencontainers/runtime-spec has for linux.seccomp, as far as we use it.
PROFILE_KEYS = {"defaultAction", "defaultErrnoRet", "architectures", "syscalls"}
RULE_KEYS = {"names", "action", "errnoRet", "args"}
ARGUMENT_KEYS = {"index", "value", "valueTwo", "op"}
ACTIONS = {"SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL_PROCESS"}
ENOSYS = bpf.errno_action(errno.ENOSYS)


@pytest.mark.parametrize("sockets", [("unix",), EVERY_SOCKET])
def test_it_has_the_shape_that_runtimes_read(sockets: tuple[str, ...]) -> None:
    document = oci_profile.profile(sockets)
    assert document.keys() == PROFILE_KEYS  # docker refuses `architectures` beside `archMap`
    assert document["defaultAction"] == "SCMP_ACT_ERRNO"
    assert sorted(document["architectures"]) == ["SCMP_ARCH_AARCH64", "SCMP_ARCH_X86_64"]
    for rule in document["syscalls"]:
        check_rule(rule)


def check_rule(rule: dict[str, Any]) -> None:
    assert {"names", "action"} <= rule.keys() <= RULE_KEYS
    assert rule["names"], "docker refuses a rule without names"
    assert rule["action"] in ACTIONS
    assert ("errnoRet" in rule) == (rule["action"] == "SCMP_ACT_ERRNO")
    arguments = rule.get("args", [])
    assert all(argument.keys() == ARGUMENT_KEYS for argument in arguments)
    assert all(argument["op"] == "SCMP_CMP_MASKED_EQ" for argument in arguments)
    # runc reads two conditions on one argument as alternatives, not as both.
    places = [argument["index"] for argument in arguments]
    assert len(places) == len(set(places))
    assert all(0 <= place < 6 for place in places)


def test_the_profile_for_containers_has_every_call_once() -> None:
    document = oci_profile.profile()
    plain = [call for rule in document["syscalls"] if "args" not in rule for call in rule["names"]]
    assert len(plain) == len(set(plain))
    assert {"ptrace", "mount", "reboot", "read"} <= set(plain)
    assert {"clone3", "openat2", "pidfd_getfd", "socket"}.isdisjoint(plain)


@functools.cache
def loaded(sockets: tuple[str, ...]) -> bytes:
    """Return the program that libseccomp makes of the profile, fed to it as runc does."""
    library = pytest.importorskip("pyseccomp")
    document = oci_profile.profile(sockets)
    filter_ = library.SyscallFilter(library.ERRNO(document["defaultErrnoRet"]))
    for name in document["architectures"]:
        architecture = getattr(library.Arch, name.removeprefix("SCMP_ARCH_"))
        if architecture != library.system_arch():
            filter_.add_arch(architecture)
    for rule in document["syscalls"]:
        arguments = [
            library.Arg(each["index"], library.MASKED_EQ, each["value"], each["valueTwo"])
            for each in rule.get("args", ())
        ]
        for name in rule["names"]:
            filter_.add_rule(action_of(library, rule), name, *arguments)
    with tempfile.TemporaryFile() as file:
        filter_.export_bpf(file)
        file.seek(0)
        return file.read()


def action_of(library: Any, rule: dict[str, Any]) -> object:  # noqa: ANN401 - an untyped module
    if rule["action"] == "SCMP_ACT_ERRNO":
        return library.ERRNO(rule["errnoRet"])
    return {"SCMP_ACT_ALLOW": library.ALLOW, "SCMP_ACT_KILL_PROCESS": library.KILL_PROCESS}[
        rule["action"]
    ]


def numbers_of(machine: str) -> dict[str, int]:
    place = MACHINES.index(machine)
    numbers = ((name, each[place]) for name, each in seccomp.NUMBERS.items())
    return {name: number for name, number in numbers if number is not None}


# Where the launcher's second program judges, or where the two differ on purpose.
JUDGED_ELSEWHERE = {*oci_profile.CONDITIONS, "socket", "openat2", "pidfd_getfd"}


@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_is_answered_as_the_launcher_answers_it(machine: str) -> None:
    ours, theirs = stored_programs.call_program(machine), loaded(("unix",))
    architecture = seccomp.ARCHITECTURES[machine]
    judged = {number for name, number in numbers_of(machine).items() if name in JUDGED_ELSEWHERE}
    for number in set(range(1024)) - judged:
        expected = run(ours, number, architecture=architecture)
        assert run(theirs, number, architecture=architecture) == expected, number
    for name in ("openat2", "pidfd_getfd"):  # the broker's, in a launcher that is warm
        number = numbers_of(machine)[name]
        assert run(theirs, number, architecture=architecture) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", [*oci_profile.CONDITIONS, "socket"])
@settings(deadline=None)
@given(arguments=st.tuples(*[st.integers(0, 20) | st.integers(0, 2**64 - 1)] * 5))
def test_random_arguments_open_what_they_open_in_the_launcher(
    machine: str, call: str, arguments: tuple[int, ...]
) -> None:
    assert_agreement(machine, call, arguments)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("call", [*oci_profile.CONDITIONS, "socket"])
def test_every_single_bit_opens_what_it_opens_in_the_launcher(machine: str, call: str) -> None:
    for place in range(5):
        for bit in range(64):
            assert_agreement(machine, call, (0,) * place + (1 << bit,))


def assert_agreement(machine: str, call: str, arguments: tuple[int, ...]) -> None:
    number, architecture = numbers_of(machine)[call], seccomp.ARCHITECTURES[machine]
    ours = seccomp.argument_program(machine, EVERY_SOCKET, truncate_is_seen=True)
    verdict = run(loaded(EVERY_SOCKET), number, *arguments, architecture=architecture)
    allowed = run(ours, number, *arguments, architecture=architecture) == bpf.ALLOW
    assert verdict == (bpf.ALLOW if allowed else ENOSYS)


def test_the_command_prints_it() -> None:
    done = osguard("seccomp", "export", "--format", "oci")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == oci_profile.profile(("unix",))
    assert osguard("seccomp", "export").stdout == done.stdout


def test_the_command_opens_the_network_only_when_asked() -> None:
    done = osguard("seccomp", "export", "--network")
    assert json.loads(done.stdout) == oci_profile.profile(EVERY_SOCKET)


def test_an_unknown_format_exits_with_64() -> None:
    assert osguard("seccomp", "export", "--format", "docker").returncode == 64


def test_json_may_be_asked_for_and_is_what_comes_anyway() -> None:
    plain, asked = osguard("seccomp", "export"), osguard("seccomp", "export", "--json")
    assert asked.returncode == 0
    assert json.loads(asked.stdout) == json.loads(plain.stdout)
