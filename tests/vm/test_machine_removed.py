"""Uninstalled: not while a sandbox lives, and then without a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vm.machine_operator import Operator

TRACES = (
    "ls -d /opt/democrai-osguard",
    "ls -d /run/democrai-osguard",
    "ls -d /sys/fs/cgroup/democrai-osguard-main",
    "ls /usr/local/bin/democrai-*",
    "ls /etc/systemd/system/democrai-* /etc/systemd/system/*/democrai-*",
    "ls /usr/lib/*/democrai-*",
    "systemctl list-units --all --no-legend 'democrai-*' | grep .",
    "pgrep -f '[d]emocrai_osguard_helper'",  # not the shell that looks for it
    "iptables-save | grep OSG",
    "ip6tables-save | grep OSG",
    "ipset list -n | grep osg",
    "getent group democrai-osguard",
    "getent passwd democrai-osguard-resolver",
)


def test_it_is_not_removed_while_a_sandbox_lives(operator: Operator) -> None:
    operator.start_resident("last")
    said = operator.machine.must_fail("cd /root/tree && make uninstall")
    assert "sandboxes are still running" in said
    assert operator.held("last")
    operator.end_resident("last")


def test_removed_it_leaves_nothing(operator: Operator) -> None:
    machine = operator.machine
    controls = [trace for trace in TRACES if machine.run(trace).code == 0]
    assert len(controls) == len(TRACES), "each trace is there before"
    machine.wait_until("grep -q '^populated 0' /sys/fs/cgroup/democrai-osguard-main/cgroup.events")
    machine.must_succeed("cd /root/tree && make uninstall")
    left = {trace: machine.run(trace).output for trace in TRACES if machine.run(trace).code == 0}
    assert left == {}
