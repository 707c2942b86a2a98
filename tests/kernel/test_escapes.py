"""Every way out that we know, tried free and confined, as root and as an ordinary user."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

import pytest
from kernel.techniques import LOADER, TECHNIQUES, TRUE, World, call, execute
from kernel.world import new_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernel.conftest import Confined, Free

pytestmark = pytest.mark.needs("landlock", "landlock-scopes", "seccomp", "root")

NOBODY = 65534
REFUSED = {"EACCES", "EPERM", "ENOSYS", "EXDEV", "ESRCH", f"died: -{signal.SIGSYS:d}"}
# What this host cannot do even when free, each with the reason why that is no test of ours.
CONTROL_MAY_LACK = {
    "32-bit entry": "the kernel is built without 32-bit programs",
    "alg socket": "the kernel is built without it",
    "vsock socket": "likewise",
    "connect with MPTCP": "likewise",
    "generation of a descriptor that reads": "the file system computes checksums with it",
    "generation by ext4's number": "likewise, or it is no ext4",
    "file_setattr": "the call is younger than Linux 6.17",
    "setxattrat": "the call is younger than Linux 6.13",
    "type into the terminal": "the administrator switched it off",
    "type with a dirty upper half": "likewise",
    "perf": "the machine has no counters",
    "POSIX queue": "the kernel is built without it",
    "connect to IPv6": "the host has no IPv6",
    "open a disk": "the host keeps its disk even from root",
}


@pytest.fixture
def world() -> Iterator[Callable[[int], World]]:
    with contextlib.ExitStack() as ends:
        yield lambda uid: ends.enter_context(new_world(uid))


@pytest.mark.parametrize("uid", [0, NOBODY], ids=["root", "nobody"])
@pytest.mark.parametrize("name", TECHNIQUES)
def test_no_way_out(
    name: str, uid: int, world: Callable[[int], World], free: Free, confined: Confined
) -> None:
    attempt, anybody = TECHNIQUES[name]
    if uid and not anybody:
        return  # an ordinary user is refused by the kernel already, free or not
    control, inside = world(uid), world(uid)
    grants = [(op, inside.inside) for op in ("read", "create", "modify", "delete")]
    grants.append(("read", inside.inside.parent / "readable"))
    verdict = confined(lambda: attempt(inside), *grants, uid=uid)
    assert verdict in REFUSED
    freely = free(lambda: attempt(control), uid=uid)
    if name in CONTROL_MAY_LACK and freely != "allowed":
        pytest.skip(f"{CONTROL_MAY_LACK[name]}: {freely}")
    assert freely == "allowed"


def test_there_are_enough_of_them() -> None:
    assert len(TECHNIQUES) >= 100


KNOWN_GAPS: dict[str, Callable[[World], object]] = {
    "stat": lambda w: w.secret.stat(),
    "inotify": lambda w: call(254, call(253), os.fsencode(w.outside), 0x100),
    "code that can be read, through the loader": lambda w: execute(
        LOADER, str(w.inside.parent / "readable/program")
    ),
    "sockets of others": lambda w: _named(f"@democrai-{w.victim}\n", "/proc/self/net/unix"),
    "processes of others": lambda w: os.getpgid(w.victim),
}


def _named(name: str, path: str) -> None:
    """Fail unless the file tells of it."""
    with open(path, encoding="utf-8", errors="replace") as file:
        assert name in file.read()


@pytest.mark.parametrize("name", KNOWN_GAPS)
def test_what_is_not_held_is_what_the_readme_says(
    name: str, world: Callable[[int], World], confined: Confined
) -> None:
    inside = world(0)
    shutil.copy(TRUE, inside.inside.parent / "readable/program")
    gap = KNOWN_GAPS[name]
    assert confined(lambda: gap(inside), ("read", inside.inside.parent / "readable")) == "allowed"


FLIPS = 1_000


def _race(w: World, *, until_out: bool) -> None:
    """Create files under a name that is now a folder inside and now a link to the outside."""
    way = w.inside / "way"
    (w.inside / "folder").mkdir()
    way.symlink_to(w.inside / "folder")
    flips = mmap.mmap(-1, 8)  # shared with the process that flips
    flipper = os.fork()
    while flipper == 0:
        for target in (w.outside, w.inside / "folder"):
            (w.inside / "link").symlink_to(target)
            (w.inside / "link").rename(way)
        flips[:] = (int.from_bytes(flips[:], "little") + 2).to_bytes(8, "little")
    end = time.monotonic() + 600
    for number in itertools.count():
        with contextlib.suppress(OSError):
            os.close(os.open(way / f"new{number}", os.O_CREAT | os.O_WRONLY | os.O_EXCL))
        raced = number > FLIPS and int.from_bytes(flips[:], "little") > FLIPS
        if time.monotonic() > end or (raced and (not until_out or any(w.outside.glob("new*")))):
            break
    os.kill(flipper, signal.SIGKILL)
    os.waitpid(flipper, 0)


def test_a_race_with_a_link_creates_nothing_outside(
    world: Callable[[int], World], free: Free, confined: Confined
) -> None:
    control, inside = world(0), world(0)
    assert free(lambda: _race(control, until_out=True)) == "allowed"
    assert list(control.outside.glob("new*"))
    grants = [("create", inside.inside), ("delete", inside.inside)]
    assert confined(lambda: _race(inside, until_out=False), *grants) == "allowed"
    assert list(inside.inside.glob("folder/new*"))
    assert not list(inside.outside.glob("new*"))
