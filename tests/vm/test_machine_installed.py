"""The wheel on a real Debian: installed over the one before, started by systemd, by its socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from vm.conftest import QUICK, document
from vm.operator import ALLOWED, FORBIDDEN, HELPER

if TYPE_CHECKING:
    from vm.machine import Machine
    from vm.operator import Operator

USERS = ("ann", "root")


@pytest.mark.skipif(QUICK, reason="installs one wheel only")
def test_a_sandbox_outlives_the_upgrade_and_was_held_all_the_time(operator: Operator) -> None:
    assert operator.held("upgraded")
    assert "0.0.1" not in operator.machine.must_succeed("democrai-osguard --version")
    running = operator.machine.must_succeed(
        f"readlink /proc/{operator.helper_pid()}/exe; ls /opt/democrai-osguard"
    )
    assert len(running.splitlines()) == 2, "one release is left"
    sandboxes = operator.helper_status()["sandboxes"]
    assert isinstance(sandboxes, list)
    assert [each["populated"] for each in sandboxes] == [True]
    operator.end_resident("upgraded")


def test_the_helper_is_started_by_its_socket(operator: Operator) -> None:
    operator.machine.must_succeed(f"systemctl stop {HELPER}")
    assert operator.helper_pid() == 0
    operator.helper_status()
    assert operator.helper_pid() != 0


def test_every_layer_holds_under_the_hardening_of_the_unit(operator: Operator) -> None:
    assert operator.helper_status()["layers"] == {"bpf": None, "firewall": None}
    text = operator.machine.must_succeed(f"systemctl show -P StatusText {HELPER}")
    assert text.strip() == "every layer holds"


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
    assert machine.must_succeed(operator.attempt(ALLOWED), user).strip() == "ok"
    assert "Operation not permitted" in machine.must_fail(operator.attempt(FORBIDDEN), user)
