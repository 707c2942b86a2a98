"""A systemd of the report's own, where the host does not run one: the first process of namespaces.

It has a `/run`, a `/tmp` and cgroups of its own, and sees the rest of the host without being able
to change it. What a host starts when it boots is masked: it would empty `/tmp`, and more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from democrai_osguard_helper.cgroups import find_mount

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 60
_BOOT = """
set -e
echo $$ > "$1/cgroup.procs"
exec unshare --pid --fork --kill-child --mount --cgroup --uts --ipc --mount-proc sh -ec '
mount --make-rprivate /
mount --bind /proc/sys /proc/sys
for place in / /dev /sys /proc/sys; do mount -o remount,bind,ro $place; done
for place in /run /tmp /sys/fs/cgroup; do mount -t tmpfs tmpfs $place; done
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /run/systemd/system
ln -s /dev/null /run/systemd/system/sysinit.target
printf "[Unit]\\nDefaultDependencies=no\\n" > /run/systemd/system/empty.target
export container=report
exec /lib/systemd/systemd --system --unit=empty.target --log-target=null
'
"""


def is_running() -> bool:
    """Tell whether the first process here is systemd."""
    return os.path.isdir("/run/systemd/system")


@contextlib.contextmanager
def private_systemd() -> Iterator[list[str]]:
    """Start one, and return the words that put a command into its namespaces."""
    group = Path(find_mount()) / f"escape-report-{os.getpid()}"
    group.mkdir()
    booted = subprocess.Popen(["sh", "-c", _BOOT, "sh", str(group)])
    try:
        enter = ["nsenter", "-t", str(_first_process(booted)), "-m", "-p", "-C", "-u", "-i"]
        _wait_until_ready(enter)
        yield enter
    finally:
        booted.send_signal(signal.SIGKILL)  # and with it, by its death signal, the first process
        booted.wait()
        _remove(group)


def _first_process(booted: subprocess.Popen[bytes]) -> int:
    """Return the number, out here, of the process that is number 1 in there."""
    children = Path(f"/proc/{booted.pid}/task/{booted.pid}/children")
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        for word in children.read_text().split():
            if Path(f"/proc/{word}/comm").read_text() == "systemd\n":
                return int(word)
        time.sleep(0.05)
    raise TimeoutError("systemd did not start")


def _wait_until_ready(enter: list[str]) -> None:
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        asked = subprocess.run(
            [*enter, "systemctl", "is-system-running"], capture_output=True, text=True, check=False
        )
        if asked.stdout.strip() in {"running", "degraded"}:
            return
        time.sleep(0.1)
    raise TimeoutError("systemd did not become ready")


def _remove(group: Path) -> None:
    """Remove the cgroups once the last process is gone; a folder of a cgroup has only cgroups."""
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            for folder, _, _ in os.walk(group, topdown=False):
                os.rmdir(folder)
            return
        time.sleep(0.1)
    raise TimeoutError(f"{group} is still in use")
