"""Looking as reading: sizes, times, links and attributes only of what may be read."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import socket
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import PR_SET_DUMPABLE, in_a_fork, plan_for
from kernel.techniques import LIBC, call
from kernel.test_broker_races import AT_FDCWD, RENAME_EXCHANGE, Pointer, meanwhile

from democrai_osguard_launcher.facts import gather
from democrai_osguard_launcher.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Free, Grant, Launch

    Look = Callable[[Path], object]

pytestmark = [
    pytest.mark.needs("landlock", "landlock-truncate", "seccomp"),
    pytest.mark.skipif(
        os.uname().machine != "x86_64", reason="numbers of calls are this machine's"
    ),
]

ROUNDS = 10_000
STAT, LSTAT, FSTAT, ACCESS, READLINK, STATFS, FSTATFS = 4, 6, 5, 21, 89, 137, 138
NEWFSTATAT, FACCESSAT, FACCESSAT2, READLINKAT, STATX = 262, 269, 439, 267, 332
GETXATTR, LGETXATTR, LISTXATTR, LLISTXATTR = 191, 192, 194, 195
INOTIFY_INIT, INOTIFY_ADD_WATCH, IN_CREATE, IN_DONT_FOLLOW = 253, 254, 0x100, 0x02000000
EMPTY, NOFOLLOW = 0x1000, 0x100
BUFFER = ctypes.create_string_buffer(4096)


def _at(path: Path) -> bytes:
    return os.fsencode(path)


def _without_rights(path: Path, flags: int = 0) -> int:
    return os.open(path, os.O_PATH | flags)


def _watched(path: Path, flags: int = 0) -> None:
    call(INOTIFY_ADD_WATCH, call(INOTIFY_INIT), _at(path), IN_CREATE | flags)


def _from_within(at: Path, number: int, *arguments: object) -> int:
    os.chdir(at)
    return call(number, *arguments)


# Each looks at `file` or `link` of a folder.
LOOKS: dict[str, Look] = {
    "stat": lambda at: call(STAT, _at(at / "file"), BUFFER),
    "stat through a link": lambda at: call(STAT, _at(at / "link"), BUFFER),
    "stat of the folder": lambda at: call(STAT, _at(at), BUFFER),
    "lstat": lambda at: call(LSTAT, _at(at / "link"), BUFFER),
    "fstatat": lambda at: call(NEWFSTATAT, AT_FDCWD, _at(at / "file"), BUFFER, 0),
    "fstatat of a link": lambda at: call(NEWFSTATAT, AT_FDCWD, _at(at / "link"), BUFFER, NOFOLLOW),
    "fstatat with a useless flag": lambda at: call(
        NEWFSTATAT, AT_FDCWD, _at(at / "file"), BUFFER, EMPTY
    ),
    "statx": lambda at: call(STATX, AT_FDCWD, _at(at / "file"), 0, 0x7FF, BUFFER),
    "access": lambda at: call(ACCESS, _at(at / "file"), os.R_OK),
    "faccessat": lambda at: call(FACCESSAT, AT_FDCWD, _at(at / "file"), os.R_OK),
    "faccessat2": lambda at: call(FACCESSAT2, AT_FDCWD, _at(at / "file"), os.R_OK, 0x200),
    "readlink": lambda at: call(READLINK, _at(at / "link"), BUFFER, 4096),
    "readlinkat": lambda at: call(READLINKAT, AT_FDCWD, _at(at / "link"), BUFFER, 4096),
    "statfs": lambda at: call(STATFS, _at(at), BUFFER),
    "getxattr": lambda at: call(GETXATTR, _at(at / "file"), b"user.y", BUFFER, 4096),
    "lgetxattr": lambda at: call(LGETXATTR, _at(at / "file"), b"user.y", BUFFER, 4096),
    "size of an attribute": lambda at: call(GETXATTR, _at(at / "file"), b"user.y", None, 0),
    "listxattr": lambda at: call(LISTXATTR, _at(at / "file"), BUFFER, 4096),
    "llistxattr": lambda at: call(LLISTXATTR, _at(at / "file"), BUFFER, 4096),
    "watch": _watched,
    "watch a link": lambda at: _watched(at / "link", IN_DONT_FOLLOW),
    "fstat of a descriptor without rights": lambda at: call(
        FSTAT, _without_rights(at / "file"), BUFFER
    ),
    "fstatat of a descriptor without rights": lambda at: call(
        NEWFSTATAT, _without_rights(at / "file"), b"", BUFFER, EMPTY
    ),
    "statx of a descriptor without rights": lambda at: call(
        STATX, _without_rights(at / "file"), b"", EMPTY, 0x7FF, BUFFER
    ),
    "fstatfs of a descriptor without rights": lambda at: call(
        FSTATFS, _without_rights(at), BUFFER
    ),
    "readlinkat of a descriptor without rights": lambda at: call(
        READLINKAT, _without_rights(at / "link", os.O_NOFOLLOW), b"", BUFFER, 4096
    ),
    "where a link leads, by a descriptor without rights": lambda at: call(
        READLINK, b"/proc/self/fd/%d" % _without_rights(at / "link"), BUFFER, 4096
    ),
    "the same by the process's number": lambda at: call(
        READLINK, b"/proc/%d/fd/%d" % (os.getpid(), _without_rights(at / "link")), BUFFER, 4096
    ),
    "the same by the thread's": lambda at: call(
        READLINK, b"/proc/self/task/%d/fd/%d" % (os.getpid(), _without_rights(at / "link")),
        BUFFER, 4096,
    ),
    "the same beside the folder": lambda at: call(
        READLINKAT, os.open("/proc/self/fd", os.O_PATH), b"%d" % _without_rights(at / "link"),
        BUFFER, 4096,
    ),
    "the same by a link to itself": lambda at: call(
        READLINKAT,
        os.open(f"/proc/self/fd/{_without_rights(at / 'link')}", os.O_PATH | os.O_NOFOLLOW),
        b"", BUFFER, 4096,
    ),
    "stat of an open file in proc": lambda at: call(
        STAT, b"/proc/self/fd/%d" % _without_rights(at / "file"), BUFFER
    ),
    "stat through the root in proc": lambda at: call(
        STAT, b"/proc/self/root" + _at(at / "file"), BUFFER
    ),
    "stat beneath a descriptor": lambda at: call(
        NEWFSTATAT, _without_rights(at), b"file", BUFFER, 0
    ),
    "stat of the working folder": lambda at: _from_within(at, STAT, b".", BUFFER),
    "fstatat of the working folder": lambda at: _from_within(
        at, NEWFSTATAT, AT_FDCWD, b"", BUFFER, EMPTY
    ),
}  # fmt: skip


def looked(act: Callable[[], object], *grants: Grant) -> str:
    """Do something where looking is reading; return what came of it."""
    rules = [planned.rule for planned in plan_for(grants).rules]
    facts = gather(rules, None, os.environ.get("PATH"))
    return in_a_fork(act, make_plan(rules, facts, stat_as_read=True))


@pytest.mark.parametrize("look", LOOKS)
def test_looking_needs_what_reading_needs(
    look: str, folder: Callable[[str], Path], free: Free
) -> None:
    at, sibling = folder("granted"), folder("granted-not")

    def act() -> object:
        return LOOKS[look](at)

    assert free(act) == "allowed"
    assert looked(act, ("read", at)) == "allowed"
    assert looked(act, ("read", sibling)) == "EACCES"
    others = [(operation, at) for operation in ("create", "modify", "delete")]
    assert looked(act, *others) == "EACCES"


def test_without_the_option_everything_can_be_looked_at(folder: Callable[[str], Path]) -> None:
    at = folder("granted")
    assert in_a_fork(lambda: os.stat(at / "file"), plan_for([])) == "allowed"


def test_a_link_that_leads_out_shows_itself_and_not_the_other_end(
    folder: Callable[[str], Path], free: Free
) -> None:
    inside, outside = folder("inside"), folder("outside")
    (inside / "way").symlink_to(outside / "file")
    assert looked(lambda: os.readlink(inside / "way"), ("read", inside)) == "allowed"
    assert looked(lambda: os.lstat(inside / "way"), ("read", inside)) == "allowed"
    assert looked(lambda: os.stat(inside / "way"), ("read", inside)) == "EACCES"
    assert free(lambda: os.stat(inside / "way")) == "allowed"


def test_the_answers_are_the_kernels_own(folder: Callable[[str], Path]) -> None:
    at = folder("granted")

    def everything() -> str:
        opened = os.open(at / "file", os.O_RDONLY)
        found: list[object] = [os.stat(path) for path in (at, at / "file", at / "fifo", opened)]
        found += [os.lstat(at / "link"), os.readlink(at / "link"), os.fstat(0)]
        found += [os.access(at / "file", mode) for mode in (os.F_OK, os.W_OK, os.X_OK)]
        found += [os.listxattr(at / "file"), os.getxattr(at / "file", "user.y")]
        found += [os.statvfs(at)[:2], os.path.exists(at / "none"), os.readlink("/proc/self/fd/0")]
        return repr(found)

    expected = everything()

    def act() -> None:
        assert everything() == expected

    assert looked(act, ("read", at)) == "allowed"


WRONG: dict[str, tuple[Look, int]] = {
    "nothing there": (lambda at: call(STAT, _at(at / "none"), BUFFER), errno.ENOENT),
    "no name": (lambda _: call(STAT, b"", BUFFER), errno.ENOENT),
    "nowhere to read from": (lambda _: call(STAT, ctypes.c_void_p(1), BUFFER), errno.EFAULT),
    "nowhere to write to": (
        lambda at: call(STAT, _at(at / "file"), ctypes.c_void_p(1)), errno.EFAULT,
    ),
    "far away": (
        lambda at: call(STAT, _at(at / "file"), ctypes.c_void_p(2**63)), errno.EFAULT,
    ),
    "no descriptor": (lambda _: call(FSTAT, 999, BUFFER), errno.EBADF),
    "no link": (lambda at: call(READLINK, _at(at / "file"), BUFFER, 9), errno.EINVAL),
    "no room for a link": (lambda at: call(READLINK, _at(at / "link"), BUFFER, 0), errno.EINVAL),
    "no room for an attribute": (
        lambda at: call(LISTXATTR, _at(at / "file"), BUFFER, 1), errno.ERANGE,
    ),
    "no such attribute": (
        lambda at: call(GETXATTR, _at(at / "file"), b"user.none", BUFFER, 99), errno.ENODATA,
    ),
    "not a folder": (lambda at: call(STAT, _at(at / "file/x"), BUFFER), errno.ENOTDIR),
    "not allowed by its mode": (lambda at: call(ACCESS, _at(at / "file"), os.X_OK), errno.EACCES),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_fails_fails_as_ever(wrong: str, folder: Callable[[str], Path], free: Free) -> None:
    look, code = WRONG[wrong]
    at = folder("granted")
    assert free(lambda: look(at)) == errno.errorcode[code]
    assert looked(lambda: look(at), ("read", at)) == errno.errorcode[code]


def test_a_watch_works(folder: Callable[[str], Path]) -> None:
    at = folder("granted")

    def act() -> None:
        watches = call(INOTIFY_INIT)
        call(INOTIFY_ADD_WATCH, watches, _at(at), IN_CREATE)
        (at / "new").mkdir()
        assert select.select([watches], [], [], 60)[0]
        assert b"new\0" in os.read(watches, 4096)

    assert looked(act, ("read", at), ("create", at)) == "allowed"


def test_a_pointer_that_is_rewritten_shows_nothing_else(tmp_path: Path, free: Free) -> None:
    inside, outside = tmp_path / "a", tmp_path / "b"
    for at, size in ((inside, 1), (outside, 2)):
        at.mkdir()
        (at / "file").write_bytes(b"x" * size)
    pointer = Pointer(inside, "file")
    allowed, secret = ((at / "file").stat().st_ino for at in (inside, outside))

    def see() -> set[int]:
        seen = set()
        for _ in range(ROUNDS):
            answer = ctypes.create_string_buffer(144)
            with contextlib.suppress(PermissionError):
                call(STAT, ctypes.c_void_p(pointer.address), answer)
                seen.add(int.from_bytes(answer.raw[8:16], "little"))
        return seen

    def act() -> None:
        seen = see()
        assert seen == {allowed}, seen

    def until_won() -> None:
        while secret not in see():
            pass

    with meanwhile(pointer.flip):
        assert looked(act, ("read", inside)) == "allowed"
        assert free(until_won) == "allowed"


def _number(path: Path) -> int:
    with contextlib.suppress(PermissionError):
        return path.stat().st_ino
    return 0


def test_a_name_that_is_swapped_shows_nothing_else(tmp_path: Path, free: Free) -> None:
    inside, outside = tmp_path / "a", tmp_path / "b"
    for at in (inside, outside):
        at.mkdir()
        (at / "file").write_text("x")
    (inside / "way").symlink_to(inside)
    (inside / "other").symlink_to(outside)
    names = _at(inside / "way"), _at(inside / "other")
    secret = (outside / "file").stat().st_ino

    def swap() -> None:
        LIBC.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)

    def seen() -> set[int]:
        return {_number(inside / "way/file") for _ in range(ROUNDS)}

    def act() -> None:
        assert secret not in seen()

    def until_won() -> None:
        while secret not in seen():
            pass

    with meanwhile(swap):
        assert looked(act, ("read", inside)) == "allowed"
        assert free(until_won) == "allowed"


def test_the_receipt_has_tried_it(launch: Launch, tmp_path: Path) -> None:
    receipt = tmp_path / "receipt"
    result = launch("--stat-as-read", "--receipt", receipt, "--", sys.executable, "-I", "-c", "")
    assert (result.returncode, result.stderr) == (0, "")
    tried = {each["act"]: each["outcome"] for each in json.loads(receipt.read_text())["tried"]}
    assert tried["looking at /"] == "EACCES"
    assert tried["looking at /dev/null"] == "allowed"


def test_explain_says_who_holds_it(launch: Launch, tmp_path: Path) -> None:
    words = ("--read", tmp_path, "--explain")
    assert "the broker for stat" in launch("--stat-as-read", *words).stdout
    assert "the broker for stat" not in launch(*words).stdout


def test_nobody_is_asked_about_looking(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = ("--stat-as-read", "--supervised", "--ask-fd", str(theirs.fileno()), "--")
        result = launch(*words, "stat", tmp_path / "file", keep=(theirs.fileno(),))
        theirs.close()
        assert (result.returncode, ours.recv(1000)) == (1, b"")
    assert "Permission denied" in result.stderr
    assert launch("--", "stat", tmp_path / "file").returncode == 0


def test_everything_allowed_and_looking_held_is_a_contradiction(launch: Launch) -> None:
    result = launch("--stat-as-read", "--observe", "/dev/null", "--", "true")
    assert (result.returncode, len(result.stderr.splitlines())) == (64, 1)


def test_a_trace_names_the_rule_that_was_missing(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    words = ("--stat-as-read", "--trace", tmp_path / "trace", "--", "stat", tmp_path / "file")
    assert launch(*words).returncode == 1
    lines = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()[1:]]
    rule = {"resource_type": "filesystem", "operation": "read", "target": str(tmp_path / "file")}
    assert rule in [line["missing"] for line in lines]


@pytest.mark.parametrize("link", ["cwd", "exe", "fd/0", "status"])
def test_the_broker_shows_nothing_of_other_processes(link: str) -> None:
    """To the kernel the caller is confined and may not see these; the broker is not."""
    outside = f"/proc/{os.getpid()}"
    path = f"{outside}/{link}"
    assert os.path.lexists(path)
    assert looked(lambda: os.lstat(path), ("read", "/proc")) == "EACCES"
    assert looked(lambda: os.readlink(path), ("read", "/proc")) == "EACCES"
    assert looked(lambda: os.lstat(f"/proc/self/{link}"), ("read", "/proc")) == "allowed"
    assert looked(lambda: os.lstat(outside), ("read", "/proc")) == "allowed"


@pytest.mark.parametrize("own", ["/proc/self/..", "/proc/thread-self/../../..", "/dev/fd/../.."])
def test_no_way_leads_from_ones_own_folder_into_that_of_another(own: str, tmp_path: Path) -> None:
    """Another process may stand in another tree: where its links lead, no rule is about."""
    (tmp_path / "file").write_text("x")
    way = f"{own}/{os.getpid()}/root{tmp_path}/file"
    assert os.stat(way).st_size == 1
    grants = (("read", "/proc"), ("read", tmp_path))
    assert looked(lambda: os.stat(way), *grants) == "ELOOP"
    assert looked(lambda: os.stat(f"/proc/self/root{tmp_path}/file"), *grants) == "allowed"


@pytest.mark.needs("root")
def test_attributes_of_root_are_not_shown(folder: Callable[[str], Path]) -> None:
    at = folder("granted")
    os.setxattr(at / "file", "trusted.x", b"x")

    def act() -> None:
        assert os.listxattr(at / "file") == ["user.y"]
        os.getxattr(at / "file", "trusted.x")

    assert looked(act, ("read", at)) == "ENODATA"


def test_an_ordinary_user_is_answered_and_one_who_hides_is_not() -> None:
    def hidden() -> None:
        LIBC.prctl(PR_SET_DUMPABLE, 0)
        os.stat("/dev/null")

    user = 65534 if os.geteuid() == 0 else None  # from root nothing can be hidden
    plan = make_plan((), gather((), None, None), stat_as_read=True)
    assert in_a_fork(lambda: os.stat("/dev/null"), plan, user) == "allowed"
    assert in_a_fork(lambda: os.stat("/"), plan, user) == "EACCES"
    assert in_a_fork(hidden, plan, user) == "EACCES"
