"""Times and owners by calls that libc no longer makes, and by a descriptor instead of a name."""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING

import pytest
from kernel.techniques import call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Confined, Free

pytestmark = [
    pytest.mark.needs("landlock", "landlock-truncate", "seccomp"),
    pytest.mark.skipif(
        os.uname().machine != "x86_64", reason="numbers of calls are this machine's"
    ),
]

UTIME, UTIMES, FUTIMESAT, UTIMENSAT, FCHOWNAT = 132, 235, 261, 280, 260
AT_FDCWD, EMPTY = -100, 0x1000
SECONDS, FINE = struct.pack("2q", 7, 8), struct.pack("4q", 7, 1500, 8, 2500)
FINER = struct.pack("4q", 7, 1_500_000, 8, 2_500_000)
SHORT, EXACT = (7_000_000_000, 8_000_000_000), (7_001_500_000, 8_002_500_000)


def _open(at: Path, flags: int = os.O_RDONLY) -> int:
    return os.open(at / "file", flags)


def _from_within(at: Path, number: int, *arguments: object) -> None:
    os.chdir(at / "folder")
    call(number, AT_FDCWD, b"", *arguments)


# Each changes `file`, but for the last two, which change `folder`.
TIMES: dict[str, tuple[Callable[[Path], object], tuple[int, int]]] = {
    "utime": (lambda at: call(UTIME, os.fsencode(at / "file"), SECONDS), SHORT),
    "utimes": (
        lambda at: call(UTIMES, os.fsencode(at / "file"), FINE), EXACT
    ),
    "futimesat": (
        lambda at: call(FUTIMESAT, os.open(at, os.O_PATH), b"file", FINE),
        EXACT,
    ),
    "futimesat of a descriptor": (
        lambda at: call(FUTIMESAT, _open(at), 0, FINE), EXACT
    ),
    "utimensat of a descriptor": (
        lambda at: call(UTIMENSAT, _open(at), b"", FINER, EMPTY), EXACT
    ),
    "utimensat of one without rights": (
        lambda at: call(UTIMENSAT, _open(at, os.O_PATH), b"", FINER, EMPTY),
        EXACT,
    ),
}  # fmt: skip
OTHERS: dict[str, Callable[[Path], object]] = {
    "now, by utime": lambda at: call(UTIME, os.fsencode(at / "file"), 0),
    "now, by utimes": lambda at: call(UTIMES, os.fsencode(at / "file"), 0),
    "fchownat of a descriptor": lambda at: call(
        FCHOWNAT, _open(at), b"", os.getuid(), os.getgid(), EMPTY
    ),
    "fchownat of one without rights": lambda at: call(
        FCHOWNAT, _open(at, os.O_PATH), b"", os.getuid(), os.getgid(), EMPTY
    ),
    "fchownat of the working folder": lambda at: _from_within(
        at, FCHOWNAT, os.getuid(), os.getgid(), EMPTY
    ),
    "utimensat of the working folder": lambda at: _from_within(at, UTIMENSAT, FINER, EMPTY),
}
ALL = {**{name: act for name, (act, _) in TIMES.items()}, **OTHERS}


@pytest.mark.parametrize("name", ALL)
def test_it_needs_modify_and_no_more(
    name: str, folder: Callable[[str], Path], free: Free, confined: Confined
) -> None:
    at, other = folder("granted"), folder("other")
    read = ("read", at)
    assert free(lambda: ALL[name](at)) == "allowed"
    assert confined(lambda: ALL[name](at), read, ("modify", at)) == "allowed"
    assert confined(lambda: ALL[name](at), read, ("modify", other)) == "EPERM"
    assert confined(lambda: ALL[name](at), read) == "EPERM"


@pytest.mark.parametrize("name", TIMES)
def test_the_times_are_those_that_were_asked_for(
    name: str, folder: Callable[[str], Path], confined: Confined
) -> None:
    at = folder("granted")
    act, wanted = TIMES[name]
    assert confined(lambda: act(at), ("read", at), ("modify", at)) == "allowed"
    status = os.stat(at / "file")
    assert (status.st_atime_ns, status.st_mtime_ns) == wanted


def test_a_microsecond_is_one_of_a_million(
    folder: Callable[[str], Path], free: Free, confined: Confined
) -> None:
    at = folder("granted")
    wrong = struct.pack("4q", 7, 1_000_000, 8, 0)

    def act() -> int:
        return call(UTIMES, os.fsencode(at / "file"), wrong)

    assert free(act) == "EINVAL"
    assert confined(act, ("modify", at)) == "EINVAL"


NOT_TIMES = {
    "too many nanoseconds": struct.pack("4q", 7, 10**9, 8, 0),
    "less than none": struct.pack("4q", 7, 0, 8, -1),
}


@pytest.mark.parametrize("name", NOT_TIMES)
def test_times_that_do_not_exist_are_an_error_as_ever(
    name: str, tmp_path: Path, confined: Confined, free: Free
) -> None:
    (tmp_path / "file").write_text("x")

    def act() -> None:
        call(UTIMENSAT, AT_FDCWD, os.fsencode(tmp_path / "file"), NOT_TIMES[name], 0)

    assert confined(act, ("modify", tmp_path)) == free(act) == "EINVAL"


@pytest.mark.parametrize("way", ["path", "descriptor"])
def test_one_time_may_stay_and_the_other_be_now(
    way: str, tmp_path: Path, confined: Confined
) -> None:
    now, omit = (1 << 30) - 1, (1 << 30) - 2
    file = tmp_path / "file"
    file.write_text("x")
    os.utime(file, ns=EXACT)

    def act() -> None:
        wanted = struct.pack("4q", 0, omit, 0, now)
        if way == "path":
            call(UTIMENSAT, AT_FDCWD, os.fsencode(file), wanted, 0)
        else:
            call(UTIMENSAT, os.open(file, os.O_RDONLY), 0, wanted, 0)

    assert confined(act, ("modify", tmp_path), ("read", tmp_path)) == "allowed"
    assert file.stat().st_atime_ns == EXACT[0]
    assert abs(file.stat().st_mtime_ns - time.time_ns()) < 60 * 10**9


def test_the_times_of_a_link_itself_are_set(tmp_path: Path, confined: Confined) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    before = (tmp_path / "file").stat().st_mtime_ns

    def act() -> None:
        os.utime(tmp_path / "link", ns=EXACT, follow_symlinks=False)

    assert confined(act, ("modify", tmp_path)) == "allowed"
    assert (tmp_path / "link").lstat().st_mtime_ns == EXACT[1]
    assert (tmp_path / "file").stat().st_mtime_ns == before
