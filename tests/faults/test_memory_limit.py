"""A memory limit that is hit in the middle of decisions: what was acknowledged is there, once."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, read
from host_features import PROBES
from soak import accounts
from soak.parts import service_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIMIT = 96 * 1024 * 1024
_ROUNDS = 4
_PLACES = (  # where the memory controller may be, and how it is told a limit
    (
        Path("/sys/fs/cgroup/memory"),
        {"memory.limit_in_bytes": _LIMIT, "memory.memsw.limit_in_bytes": _LIMIT},
    ),
    (Path("/sys/fs/cgroup"), {"memory.max": _LIMIT, "memory.swap.max": 0}),
)


@contextlib.contextmanager
def _limited() -> Iterator[Path]:
    """Make a cgroup whose processes may hold little memory, and remove it again."""
    place, settings = next((p, s) for p, s in _PLACES if _has_controller(p))
    group = place / f"osguard-fault-{os.getpid()}"
    group.mkdir()
    try:
        for name, value in settings.items():
            with contextlib.suppress(FileNotFoundError, PermissionError):  # without swap accounting
                (group / name).write_text(str(value))
        yield group
    finally:
        group.rmdir()


def _has_controller(place: Path) -> bool:
    if (place / "memory.limit_in_bytes").exists():
        return True
    control = place / "cgroup.subtree_control"
    return control.exists() and "memory" in control.read_text().split()


PROBES["memory-cgroup"] = lambda: os.geteuid() == 0 and any(_has_controller(p) for p, _ in _PLACES)
pytestmark = pytest.mark.needs("memory-cgroup")


def _decide_and_grow(folder: Path, group: Path, start: int, says: int) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))
    service = service_of(folder)
    held: list[bytearray] = []
    number = start
    while True:
        outcome = service.approve_permanently(service.register(read(f"/srv/{number}")).id, ADA)
        assert outcome.decision is not None
        os.write(says, f"{outcome.decision.id}\n".encode())
        held.append(bytearray(os.urandom(1024 * 1024)))
        number += 1


def _killed_by_the_limit(folder: Path, group: Path, start: int) -> list[str]:
    hears, says = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _decide_and_grow(folder, group, start, says)
        finally:
            os._exit(1)
    os.close(says)
    select.select([hears], [], [], 60)
    with os.fdopen(hears) as pipe:
        lines = [line for line in pipe.read().splitlines(keepends=True) if line.endswith("\n")]
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the limit was not hit"
    return lines


def test_what_was_acknowledged_before_the_limit_is_there(tmp_path: Path) -> None:
    done: Counter[str] = Counter()
    with _limited() as group, (tmp_path / "acknowledged").open("w") as acknowledged:
        for number in range(_ROUNDS):
            lines = _killed_by_the_limit(tmp_path, group, number * 1000)
            acknowledged.writelines(lines)
            done["acknowledged"] += len(lines)
    found = accounts.decisions(tmp_path)
    assert found["decisions committed"] >= done["acknowledged"] > 0
