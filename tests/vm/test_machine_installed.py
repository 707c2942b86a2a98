"""The wheel on a real Debian: installed over the one before, started by systemd, by its socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from vm.conftest import UPGRADED, UPGRADES, document
from vm.machine_operator import ALLOWED, FORBIDDEN, HELPER, NAME, NAMED, PORT

if TYPE_CHECKING:
    from vm.machine import Machine
    from vm.machine_operator import Operator

USERS = ("ann", "root")
RIGHTS = 1 << 39 | 1 << 13 | 1 << 12  # CAP_BPF, CAP_NET_RAW, CAP_NET_ADMIN: what the unit leaves it


@pytest.mark.skipif(not UPGRADES, reason="installs one wheel only")
def test_sandboxes_outlive_the_upgrade_and_were_held_all_the_time(operator: Operator) -> None:
    assert all(operator.held(name) for name in UPGRADED.values())
    assert "0.0.1" not in operator.machine.must_succeed("democrai-osguard --version")
    (release,) = operator.machine.must_succeed("ls /opt/democrai-osguard").split()
    running = operator.machine.must_succeed(f"cat /proc/{operator.helper_pid()}/cmdline")
    assert running.startswith(f"/opt/democrai-osguard/{release}/bin/python3\0")
    sandboxes = operator.helper_status()["sandboxes"]
    assert isinstance(sandboxes, list)
    assert [each["populated"] for each in sandboxes] == [True, True]
    for name in UPGRADED.values():
        operator.end_resident(name)


def test_the_helper_is_started_by_its_socket(operator: Operator) -> None:
    operator.machine.must_succeed(f"systemctl stop {HELPER}")
    assert operator.helper_pid() == 0
    operator.helper_status()
    assert operator.helper_pid() != 0


def test_every_layer_holds_under_the_hardening_of_the_unit(operator: Operator) -> None:
    assert operator.helper_status()["layers"] == {"bpf": None, "firewall": None}
    text = operator.machine.must_succeed(f"systemctl show -P StatusText {HELPER}")
    assert text.strip() == "every layer holds"


def test_the_hardening_is_in_force(operator: Operator) -> None:
    """A systemd that does not know a setting passes over it: what counts is what the kernel has."""
    operator.helper_status()  # awake
    status = operator.machine.must_succeed(f"cat /proc/{operator.helper_pid()}/status")
    seen = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(seen["CapBnd"], 16) == RIGHTS
    assert int(seen["CapEff"], 16) == RIGHTS
    assert (seen["NoNewPrivs"], seen["Seccomp"]) == ("1", "2")
    mounts = operator.machine.must_succeed(f"cat /proc/{operator.helper_pid()}/mounts")
    root = next(line.split() for line in mounts.splitlines() if line.split()[1] == "/")
    assert root[3].split(",")[0] == "ro"


def test_a_stranger_cannot_ask_the_helper(operator: Operator) -> None:
    operator.machine.must_succeed("id bob || useradd bob")
    said = operator.machine.run("democrai-osguard helper status", user="bob")
    assert said.code == 125, said.output


@pytest.mark.parametrize("user", USERS)
def test_status_names_the_abi_of_this_kernel(operator: Operator, abi: int, user: str) -> None:
    said = document(operator.machine.must_succeed("democrai-osguard status --json", user))
    assert said["landlock"] == {"abi": abi, "errata": said["landlock"]["errata"]}  # type: ignore[index]
    assert said["helper"]["reachable"] is True  # type: ignore[index]


@pytest.mark.parametrize("user", USERS)
def test_the_demo_goes_as_it_says(operator: Operator, user: str) -> None:
    said = operator.machine.must_succeed("democrai-osguard demo", user)
    assert "Each act went as the policy says" in said


@pytest.mark.parametrize("user", USERS)
def test_egress_is_held_by_address(operator: Operator, user: str) -> None:
    machine: Machine = operator.machine
    machine.must_succeed(operator.attempt_free(FORBIDDEN), user)
    assert operator.heard(ALLOWED, user) == "ok"
    assert "Operation not permitted" in machine.must_fail(operator.attempt(FORBIDDEN), user)


def test_a_name_is_asked_of_the_resolvers_unit_and_opens_its_address_alone(
    operator: Operator,
) -> None:
    rules = f"--read / --connect {NAME}:{PORT}"
    machine = operator.machine
    # Nobody waits for a name longer than seconds, and emulated, its unit may start more slowly.
    assert machine.wait_until(operator.attempt(NAMED, rules), "ann").splitlines()[-1] == "ok"
    for address in (ALLOWED, FORBIDDEN):
        said = machine.must_fail(operator.attempt(address, rules), "ann")
        assert "Operation not permitted" in said
    machine.must_succeed("systemctl is-active democrai-osguard-resolver.socket")
    machine.must_succeed("journalctl -b -u 'democrai-osguard-resolver@*' | grep Started")
