"""A Debian machine under QEMU: booted, asked to do things, rebooted, cut from its power.

Software emulation: slow, but the same on every host. The disk is a sparse copy that belongs to
the test; the serial console goes into a file that stays when a test fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

BOOT_SECONDS: Final = 900.0
ASK_SECONDS: Final = 600.0
FOLLOW_SECONDS: Final = 4 * 3600.0
LOOK_SECONDS: Final = 5.0  # between two looks at what takes hours
MEMORY: Final = "1536M"
# Under QEMU 7.2 a Linux 6.12 was seen to fall right after a cmpxchg16b. The others are slow when
# emulated: a fifth level of pages at each miss, and copies byte by byte.
PROCESSOR: Final = "max,-cx16,-la57,-erms"
KERNEL_LINE: Final = (
    "root=/dev/vda rw console=ttyS0 quiet panic=-1 mitigations=off systemd.show_status=0"
    " net.ifnames=0 clearcpuid=rep_good"  # a loop of moves is faster here than one instruction
)


class Answer(NamedTuple):
    """What a command in the machine did."""

    code: int
    output: str


class MachineLost(Exception):
    """The machine does not answer any more."""


class Machine:
    """One machine with a disk of its own."""

    def __init__(self, image: Path, payload: Path, folder: Path) -> None:
        self.image = image
        self.payload = payload
        self.console = folder / "console.log"
        self._disk = folder / "disk.ext4"
        self._port = folder / "agent.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._waiting = b""
        self._asked = 0
        folder.mkdir(parents=True, exist_ok=True)
        copy = ("cp", "--sparse=always", "--reflink=auto")
        subprocess.run([*copy, image / "root.ext4", self._disk], check=True)

    def install(self, tree: str) -> None:
        """Install a tree of the payload on the disk of a machine that is not booted yet."""
        script = Path(__file__).resolve().parents[2] / "scripts/vm-install"
        subprocess.run([script, self._disk, self.payload, tree], check=True)

    def boot(self) -> None:
        """Switch it on and wait until it answers."""
        self._port.unlink(missing_ok=True)
        with self.console.open("ab") as console:
            self._process = subprocess.Popen(
                self._words(), stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        self._until(self._connect, "QEMU did not start")
        self._until(self._answers, "the machine did not boot")

    def run(self, command: str, user: str = "root", seconds: float = ASK_SECONDS) -> Answer:
        """Run a shell line in the machine."""
        answer = self._receive(self._ask(command, user, seconds), seconds + 60)
        return Answer(int(str(answer["code"])), str(answer["output"]))

    def must_succeed(self, command: str, user: str = "root", seconds: float = ASK_SECONDS) -> str:
        """Run a shell line that has to work; return what it printed."""
        answer = self.run(command, user, seconds)
        assert answer.code == 0, f"{command!r} as {user} ended with {answer.code}:\n{answer.output}"
        return answer.output

    def must_fail(self, command: str, user: str = "root", seconds: float = ASK_SECONDS) -> str:
        """Run a shell line that has to fail; return what it printed."""
        answer = self.run(command, user, seconds)
        assert answer.code != 0, f"{command!r} as {user} worked:\n{answer.output}"
        return answer.output

    def wait_until(self, command: str, user: str = "root", seconds: float = 600.0) -> str:
        """Run a shell line again and again until it works; return what it printed then."""
        until = time.monotonic() + seconds
        while (answer := self.run(command, user)).code != 0:
            assert time.monotonic() < until, f"{command!r} never worked:\n{answer.output}"
            time.sleep(0.2)
        return answer.output

    def start(self, command: str, user: str = "root") -> str:
        """Start a shell line that may take hours; return where to follow it."""
        place = f"/var/tmp/started-{self._asked}"
        self.must_succeed(
            f"{{ ({command}) > {place} 2>&1; echo $? > {place}.code; }} > /dev/null 2>&1 &", user
        )
        return place

    def follow(self, place: str, show: Callable[[str], object]) -> Answer:
        """Show what was started prints, until it ends."""
        code, shown, until = "", "", time.monotonic() + FOLLOW_SECONDS
        while not code:
            assert time.monotonic() < until, f"never ended:\n{shown}"
            time.sleep(LOOK_SECONDS)
            code = self.run(f"cat {place}.code 2> /dev/null").output.strip()
            said = self.run(f"cat {place}").output
            show(said[len(shown) :])
            shown = said
        return Answer(int(code), shown)

    def reboot(self) -> None:
        """Let it end everything properly, and switch it on again."""
        assert self._process is not None
        self._ask("systemctl reboot", "root", 60)
        self._process.wait(BOOT_SECONDS)
        self._hang_up()
        self.boot()

    def cut_power(self) -> None:
        """End it in the middle of whatever it does: what it had not written is gone."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._hang_up()

    def end(self) -> None:
        """Switch it off and forget its disk."""
        if self._process is not None and self._process.poll() is None:
            self.cut_power()
        self._disk.unlink(missing_ok=True)

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _words(self) -> list[str]:
        return [
            # It ends with whoever started it, however that ends.
            *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-accel", "tcg"),
            "-no-reboot",  # a reboot is a new process, and a panic an end
            *("-cpu", PROCESSOR, "-smp", "2", "-m", MEMORY),
            *("-display", "none", "-monitor", "none"),
            *("-nic", "none", "-kernel", str(self.image / "vmlinuz")),
            *("-initrd", str(self.image / "initrd"), "-append", KERNEL_LINE),
            *("-drive", f"file={self._disk},format=raw,if=virtio"),
            *("-drive", f"file={self.payload},format=raw,if=virtio,readonly=on"),
            *("-serial", "stdio", "-device", "virtio-rng-pci", "-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=agent,path={self._port},server=on,wait=off"),
            *("-device", "virtserialport,chardev=agent,name=agent"),
        ]

    def _connect(self) -> bool:
        channel = socket.socket(socket.AF_UNIX)
        try:
            channel.connect(str(self._port))
        except OSError:
            channel.close()
            return False
        self._channel, self._waiting = channel, b""
        return True

    def _answers(self) -> bool:
        with contextlib.suppress(TimeoutError):
            return self._receive(self._ask("true", "root", 5), 10)["code"] == 0
        return False

    def _until(self, holds: Callable[[], bool], complaint: str) -> None:
        until = time.monotonic() + BOOT_SECONDS
        while not holds():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > until:
                raise MachineLost(f"{complaint}; see {self.console}")
            time.sleep(0.1)

    def _ask(self, command: str, user: str, seconds: float) -> int:
        assert self._channel is not None
        self._asked += 1
        request = {"id": self._asked, "command": command, "user": user, "seconds": seconds}
        self._channel.settimeout(None)
        self._channel.sendall(json.dumps(request).encode() + b"\n")
        return self._asked

    def _receive(self, number: int, seconds: float) -> dict[str, object]:
        """Wait for the answer to this request; older ones are of no interest any more."""
        assert self._channel is not None
        until = time.monotonic() + seconds
        while True:
            while b"\n" in self._waiting:
                line, self._waiting = self._waiting.split(b"\n", 1)
                with contextlib.suppress(ValueError):  # a reboot may cut a line short
                    answer: dict[str, object] = json.loads(line)
                    if answer["id"] == number:
                        return answer
            self._channel.settimeout(max(until - time.monotonic(), 0.001))
            piece = self._channel.recv(65536)
            if not piece:
                raise MachineLost(f"the machine is gone; see {self.console}")
            self._waiting += piece
