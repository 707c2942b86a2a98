"""The sandboxes that run now, and on whose word: the helper's, the kernel's or their own.

A process can change what it shows of itself. So each is listed with what is known otherwise: the
helper names the subject that a sandbox was made for, and the kernel says whether a process is
confined at all. The rest is a claim, and is called one. Only processes of the same user are seen.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from democrai_osguard_helper.client import Client, HelperRefused, HelperUnavailable
from democrai_osguard_helper.protocol import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HELPER, KERNEL, ITSELF = "helper", "kernel", "itself"

_KIND = "DEMOCRAI_NETWORK_SUBJECT_KIND"
_NAME = "DEMOCRAI_NETWORK_SUBJECT"
_ENVIRON_LIMIT = 256 * 1024
_COMMAND_LIMIT = 200
_PATIENCE = 1.0  # seconds; a helper that does not answer leaves claims


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A confined process, or one that says so, not started by another of the same sandbox."""

    pid: int
    subject: str
    command: str
    known_from: str  # HELPER, KERNEL (that it is confined; its name is its own word) or ITSELF

    def document(self) -> dict[str, object]:
        """Return it as interfaces show it."""
        return asdict(self)


def running(helper: str | None = None) -> list[Sandbox]:
    """Return the sandboxes that this user can see, those that somebody vouches for first."""
    held = held_by_the_helper(helper)
    own = _filters(os.getpid())
    seen: dict[int, tuple[str, str]] = {}
    for pid in _pids():
        named = held.get(_cgroup(pid))
        claimed = _claimed(pid)
        if named is not None:
            seen[pid] = named, HELPER
        elif claimed is not None:
            seen[pid] = claimed, KERNEL if _filters(pid) > own else ITSELF
    order = (HELPER, KERNEL, ITSELF)
    found = [
        Sandbox(pid, subject, _command(pid), known_from)
        for pid, (subject, known_from) in seen.items()
        if seen.get(_parent(pid)) != (subject, known_from)
    ]
    return sorted(found, key=lambda each: (order.index(each.known_from), each.pid))


def held_by_the_helper(helper: str | None = None) -> Mapping[str, str]:
    """Return the subject of each cgroup that the helper holds; none where it does not answer."""
    try:
        with Client(helper, _PATIENCE) as client:
            instance, sandboxes = client.status().instance, client.list().sandboxes
    except (HelperUnavailable, HelperRefused, ProtocolViolation):
        return {}
    return {
        # At the root of the tree: whoever may make cgroups below their own can use any name there.
        f"/democrai-osguard-{instance}/{each.sandbox}": f"{each.subject.type}:{each.subject.name}"
        for each in sandboxes
    }


def _pids() -> Iterator[int]:
    own = os.geteuid()
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        if int(name) != os.getpid():
            try:
                if os.stat(f"/proc/{name}").st_uid == own:
                    yield int(name)
            except OSError:
                continue  # it has ended


def _claimed(pid: int) -> str | None:
    name = variable_of(pid, _NAME)
    return None if name is None else f"{variable_of(pid, _KIND) or 'module'}:{name}"


def variable_of(pid: int, variable: str) -> str | None:
    """Return a variable that a process was started with, as far as it still shows it."""
    start = f"{variable}=".encode()
    fields = _read(pid, "environ").split(b"\0")
    found = next((field[len(start) :] for field in fields if field.startswith(start)), None)
    return None if found is None else os.fsdecode(found)


def _cgroup(pid: int) -> str:
    """Return the box that a process is in, by the kernel's word; deeper ones are its own."""
    for line in _read(pid, "cgroup").splitlines():
        if line.startswith(b"0::"):
            return "/".join(os.fsdecode(line[3:]).split("/")[:3])
    return ""


def _filters(pid: int) -> int:
    """Return how many filters the kernel holds a process to, none where it could gain rights."""
    # The kernel escapes a process's own name in here, so that no line can be put in.
    status = dict(line.split(b":", 1) for line in _read(pid, "status").splitlines() if b":" in line)
    if status.get(b"NoNewPrivs", b"").strip() != b"1":
        return 0
    return int(status.get(b"Seccomp_filters", b"0"))


def _command(pid: int) -> str:
    words = os.fsdecode(_read(pid, "cmdline")).split("\0")
    return " ".join(filter(None, words))[:_COMMAND_LIMIT]


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read(_ENVIRON_LIMIT)
    except OSError:
        return b""  # it has ended, or is not ours to read
