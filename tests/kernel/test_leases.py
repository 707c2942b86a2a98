"""A lease makes others wait who open a file: reading it must not be enough to take one."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kernel.techniques import call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernel.conftest import Confined, Free

pytestmark = pytest.mark.needs("landlock", "seccomp", "root")

NOBODY = 65534
FCNTL = 72
F_SETDELEG = 1040  # from Linux 6.19: likewise for the names in a folder
# What is taken, and whom it keeps waiting.
LEASES = {
    "to be told of writers": (fcntl.F_RDLCK, os.O_WRONLY),
    "to be told of everybody": (fcntl.F_WRLCK, os.O_RDONLY),
}
AS = pytest.mark.parametrize("uid", [0, NOBODY], ids=["root", "nobody"])


@pytest.fixture
def file() -> Iterator[Callable[[int], Path]]:
    """Return what makes a file of a user, where every user comes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"

        def make(uid: int) -> Path:
            path.write_text("content")
            for place in (path.parent, path):
                os.chown(place, uid, uid)
            return path

        yield make


def keeping_others_waiting(path: Path, lease: int, others: int) -> Callable[[], object]:
    """Return what takes a lease with a descriptor that only reads, and sees somebody wait."""

    def act() -> None:
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, lease)
        with pytest.raises(BlockingIOError):
            os.open(path, others | os.O_NONBLOCK)

    return act


@AS
@pytest.mark.parametrize("lease", LEASES)
def test_who_may_read_a_file_keeps_nobody_from_opening_it(
    lease: str, uid: int, file: Callable[[int], Path], free: Free, confined: Confined
) -> None:
    path = file(uid)
    attempt = keeping_others_waiting(path, *LEASES[lease])
    assert free(attempt, uid=uid) == "allowed"
    assert confined(attempt, ("read", path), uid=uid) == "EPERM"
    assert confined(attempt, ("read", path), ("modify", path), uid=uid) == "EPERM"


@AS
@pytest.mark.parametrize("upper_half", [0, 1 << 32], ids=["plain", "dirty upper half"])
@pytest.mark.parametrize("command", [fcntl.F_SETLEASE, F_SETDELEG], ids=["lease", "delegation"])
def test_it_is_the_filter_that_refuses(
    command: int, upper_half: int, uid: int, free: Free, confined: Confined
) -> None:
    """Of a pipe the kernel says EINVAL, and Landlock nothing."""
    attempt = lambda: call(FCNTL, os.pipe()[0], command | upper_half, bytes(8))  # noqa: E731
    assert free(attempt, uid=uid) == "EINVAL"
    assert confined(attempt, uid=uid) == "EPERM"
    assert confined(lambda: fcntl.fcntl(os.pipe()[0], fcntl.F_GETFL), uid=uid) == "allowed"
