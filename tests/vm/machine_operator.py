"""What an operator does on the machine: installs, starts sandboxes, looks whether they hold."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from vm.machine import Machine

ALLOWED: Final = "198.18.0.1"
FORBIDDEN: Final = "198.18.0.2"
PORT: Final = 7001
NAME: Final = "named.test"
NAMED: Final = "51.0.0.1"  # its address; one that no name may have would stay closed
HELPER: Final = "democrai-osguard-helper.service"
SCRIPTS: Final = "/payload/tree/tests/vm"
OFFLINE: Final = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/payload/wheels"
RULES: Final = f"--read / --connect {ALLOWED}:{PORT}"
ENOUGH_LINES: Final = 3


class Operator:
    """Acts in one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def furnish(self) -> None:
        """Give the machine addresses and somebody who listens there, from boot on."""
        self.machine.must_succeed(
            "cat > /etc/systemd/system/listener.service <<'END'\n"
            "[Unit]\nRequiresMountsFor=/payload\n[Service]\n"
            "ExecStartPre=/bin/sh -c "
            "'mountpoint -q /payload || mount -o ro LABEL=payload /payload'\n"
            "ExecStartPre=/usr/sbin/ip link set lo up\n"
            f"ExecStartPre=/usr/sbin/ip addr replace {ALLOWED}/32 dev lo\n"
            f"ExecStartPre=/usr/sbin/ip addr replace {FORBIDDEN}/32 dev lo\n"
            f"ExecStartPre=/usr/sbin/ip addr replace {NAMED}/32 dev lo\n"
            f"ExecStart=/usr/bin/python3 -I {SCRIPTS}/listener.py {PORT} "
            f"{ALLOWED} {FORBIDDEN} {NAMED}\n"
            "Restart=always\nRestartSec=1\n[Install]\nWantedBy=multi-user.target\nEND\n"
            f"echo {NAMED} {NAME} >> /etc/hosts\n"
            "systemctl enable --now --quiet listener.service"
        )
        self.machine.wait_until(self.attempt_free(FORBIDDEN))

    def install(self, tree: str) -> str:
        """Install the wheel of a tree of the payload as an administrator does."""
        said = self.machine.must_succeed(
            f"rm -rf /root/{tree} && cp -r /payload/{tree} /root/{tree} && cd /root/{tree} && "
            f"{OFFLINE} PACKAGE=$(ls dist/*.whl) make install",
            seconds=1800,
        )
        self.machine.must_succeed("usermod -aG democrai-osguard ann")
        return said

    def attempt_free(self, address: str) -> str:
        """Return the shell line that connects without any sandbox: the control."""
        return f"/usr/bin/python3 -I -c '{_attempt(address)}'"

    def attempt(self, address: str, options: str = RULES) -> str:
        """Return the shell line that connects from within a sandbox."""
        return f"democrai-launch {options} -- /usr/bin/python3 -I -c '{_attempt(address)}'"

    def heard(self, address: str, user: str = "ann") -> str:
        """Return what a sandbox heard there; before it the launcher says what it cannot hold."""
        return self.machine.must_succeed(self.attempt(address), user).splitlines()[-1]

    def start_resident(self, name: str, user: str = "ann") -> None:
        """Start a sandbox that stays and writes down what it can reach."""
        self.helper_status()  # awake: a launcher does not wait for minutes
        words = f"/usr/bin/python3 -I {SCRIPTS}/resident.py {PORT} {ALLOWED} {FORBIDDEN}"
        self.machine.must_succeed(
            f"systemd-run --quiet --unit={name} --uid={user} "
            "-p SupplementaryGroups=democrai-osguard "
            f"-p StandardOutput=append:/var/tmp/{name}.log -p StandardError=inherit "
            f"-- /usr/local/bin/democrai-launch {RULES} -- {words}"
        )
        self.lines(name)

    def lines(self, name: str) -> list[str]:
        """Wait until a resident has written more lines; return all that it ever wrote."""
        read = f"cat /var/tmp/{name}.log"
        before = len(self.machine.run(read).output.splitlines())
        until = time.monotonic() + 900
        while time.monotonic() < until:
            lines = self.machine.run(read).output.splitlines()
            if len(lines) >= before + ENOUGH_LINES:
                return lines
            if self.machine.run(f"systemctl is-active {name}.service").code != 0:
                break
            time.sleep(0.5)
        raise AssertionError(f"{name} stopped writing: {lines[-5:]}")

    def held(self, name: str) -> bool:
        """Tell whether a resident still reaches what it may, and never reached what it may not."""
        lines = self.lines(name)
        assert not [line for line in lines if "forbidden=ok" in line], lines
        return all(line.startswith("allowed=ok ") for line in lines[-2:])

    def end_resident(self, name: str) -> None:
        """End a resident's command; the helper finds its sandbox empty."""
        self.machine.must_succeed(f"systemctl stop {name}.service")

    def helper_status(self) -> dict[str, object]:
        """Return what the helper says of itself, once it is awake: emulated, that takes a while."""
        said = self.machine.wait_until("democrai-osguard helper status --json", seconds=900)
        read = json.loads(said)
        assert isinstance(read, dict)
        return read

    def helper_pid(self) -> int:
        """Return the main process of the helper's unit, 0 where there is none."""
        return int(self.machine.must_succeed(f"systemctl show -P MainPID {HELPER}"))


def _attempt(address: str) -> str:
    return (
        "import socket; "
        f's = socket.create_connection(("{address}", {PORT}), 20); print(s.recv(2).decode())'
    )
