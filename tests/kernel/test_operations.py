"""Each operation against the real kernel: what it opens, and that it opens nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.conftest import Action, Confined, Free, Launch

    Act = Callable[[Path], object]

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

OPERATIONS = ("read", "create", "modify", "delete", "execute")
ALSO_OPENED_BY = {"read": {"execute"}}  # the kernel reads what it starts


def _write(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    os.write(descriptor, b"x")
    os.close(descriptor)


def _execute(path: Path) -> None:
    if os.fork() == 0:
        try:
            os.execv(path, [str(path)])  # noqa: S606 - the act itself
        except OSError as error:
            os._exit(error.errno or 1)
    code = os.waitstatus_to_exitcode(os.wait()[1])
    if code:
        raise OSError(code, os.strerror(code))


# Each act on a folder that holds `file`, `folder`, `link` (to file), `fifo`, `program`, and in
# which `new` is free, with the operations that it needs.
ACTS: dict[str, tuple[Act, set[str]]] = {
    "read a file": (lambda at: (at / "file").read_bytes(), {"read"}),
    "read through a link": (lambda at: (at / "link").read_bytes(), {"read"}),
    "list a folder": (lambda at: os.listdir(at / "folder"), {"read"}),
    "read a file below": (lambda at: (at / "folder/file").read_bytes(), {"read"}),
    "open a fifo to read": (
        lambda at: os.open(at / "fifo", os.O_RDONLY | os.O_NONBLOCK),
        {"read"},
    ),
    "open a fifo to write": (
        lambda at: os.open(at / "fifo", os.O_RDWR | os.O_NONBLOCK),
        {"read", "modify"},
    ),
    "list the folder itself": (os.listdir, {"read"}),
    "append": (lambda at: _write(at / "file", os.O_WRONLY | os.O_APPEND), {"modify"}),
    "overwrite": (lambda at: _write(at / "file", os.O_WRONLY | os.O_TRUNC), {"modify"}),
    "overwrite with O_CREAT": (
        lambda at: _write(at / "file", os.O_WRONLY | os.O_CREAT),
        {"modify"},
    ),
    "write through a link": (lambda at: _write(at / "link", os.O_WRONLY), {"modify"}),
    "truncate": (lambda at: os.truncate(at / "file", 0), {"modify"}),
    "empty while reading": (
        lambda at: os.open(at / "file", os.O_RDONLY | os.O_TRUNC),
        {"read", "modify"},
    ),
    "read and write": (lambda at: os.open(at / "file", os.O_RDWR), {"read", "modify"}),
    "make a folder": (lambda at: (at / "new").mkdir(), {"create"}),
    "make a link": (lambda at: (at / "new").symlink_to("/etc/shadow"), {"create"}),
    "make a fifo": (lambda at: os.mkfifo(at / "new"), {"create"}),
    "make a socket": (lambda at: os.mknod(at / "new", 0o140600), {"create"}),
    "make a file without opening it": (lambda at: os.mknod(at / "new"), {"create"}),
    "make a file to write": (
        lambda at: _write(at / "new", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
        {"create"},
    ),
    "make a file with creat": (lambda at: open(at / "new", "x").close(), {"create"}),
    "make a file to read and write": (lambda at: (at / "new").open("w+"), {"create", "read"}),
    "remove a file": (lambda at: (at / "file").unlink(), {"delete"}),
    "remove a link": (lambda at: (at / "link").unlink(), {"delete"}),
    "remove a fifo": (lambda at: (at / "fifo").unlink(), {"delete"}),
    "remove a socket": (lambda at: (at / "socket").unlink(), {"delete"}),
    "remove a folder": (lambda at: (at / "empty").rmdir(), {"delete"}),
    "rename": (lambda at: (at / "file").rename(at / "new"), {"create", "delete"}),
    "hard link": (lambda at: os.link(at / "file", at / "new"), {"create"}),
    "start a program": (lambda at: _execute(at / "program"), {"execute"}),
}


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        at = tmp_path / name
        (at / "folder").mkdir(parents=True)
        (at / "empty").mkdir()
        (at / "file").write_text("content")
        (at / "folder/file").write_text("content")
        (at / "link").symlink_to("file")
        os.mkfifo(at / "fifo")
        os.mknod(at / "socket", 0o140600)
        # A copy, since a link would be the granted file itself.
        (at / "program").write_bytes(Path("/usr/bin/true").read_bytes())
        (at / "program").chmod(0o755)
        return at

    return make


def _on(act: Act, at: Path) -> Action:
    return lambda: act(at)


@pytest.mark.parametrize("act", ACTS)
def test_an_act_needs_exactly_its_operations(
    act: str, folder: Callable[[str], Path], free: Free, confined: Confined
) -> None:
    do, needed = ACTS[act]
    assert free(_on(do, folder("control"))) == "allowed"
    for lacking in needed:
        at = folder(f"without {lacking}")
        others = set(OPERATIONS) - {lacking} - ALSO_OPENED_BY.get(lacking, set())
        verdict = confined(_on(do, at), *((operation, at) for operation in others))
        assert verdict == "EACCES", f"without {lacking}"
    at = folder("granted")
    assert confined(_on(do, at), *((operation, at) for operation in needed)) == "allowed"


@pytest.mark.parametrize("act", ACTS)
def test_a_grant_stays_on_its_folder(
    act: str, folder: Callable[[str], Path], confined: Confined
) -> None:
    do, _ = ACTS[act]
    granted, sibling = folder("granted"), folder("granted-not")
    grants = [(operation, granted) for operation in OPERATIONS]
    assert confined(_on(do, sibling), *grants) == "EACCES"
    assert confined(_on(do, granted.parent / "granted-not"), *grants) == "EACCES"
    below = [(operation, granted / "folder") for operation in OPERATIONS]
    if "below" not in act and "list" not in act:
        assert confined(_on(do, granted), *below) == "EACCES"


def test_a_link_that_leads_out_is_outside(
    folder: Callable[[str], Path], free: Free, confined: Confined
) -> None:
    inside, outside = folder("inside"), folder("outside")
    (inside / "way").symlink_to(outside / "file")
    assert free((inside / "way").read_bytes) == "allowed"
    assert confined((inside / "way").read_bytes, ("read", inside)) == "EACCES"


def test_a_rule_holds_where_its_link_leads(
    folder: Callable[[str], Path], confined: Confined
) -> None:
    at = folder("real")
    name = at.parent / "name"
    name.symlink_to(at)
    assert confined((at / "file").read_bytes, ("read", name)) == "allowed"


def test_a_file_rule_opens_that_file_only(
    folder: Callable[[str], Path], confined: Confined
) -> None:
    at = folder("granted")
    assert confined((at / "file").read_bytes, ("read", at / "file")) == "allowed"
    assert confined((at / "folder/file").read_bytes, ("read", at / "file")) == "EACCES"


METADATA: dict[str, Act] = {
    "chmod": lambda at: (at / "file").chmod(0o777),
    "fchmod": lambda at: os.fchmod(os.open(at / "file", os.O_RDONLY), 0o777),
    "chown": lambda at: os.chown(at / "file", os.getuid(), os.getgid()),
    "lchown": lambda at: os.lchown(at / "link", os.getuid(), os.getgid()),
    "fchown": lambda at: os.fchown(os.open(at / "file", os.O_RDONLY), os.getuid(), os.getgid()),
    "utime": lambda at: os.utime(at / "file", (1, 1)),
    "futime": lambda at: os.utime(os.open(at / "file", os.O_RDONLY), (1, 1)),
    "setxattr": lambda at: os.setxattr(at / "file", "user.x", b"x"),
    "fsetxattr": lambda at: os.setxattr(os.open(at / "file", os.O_RDONLY), "user.x", b"x"),
    "removexattr": lambda at: os.removexattr(at / "file", "user.y"),
}


@pytest.mark.parametrize("act", METADATA)
def test_reading_changes_no_metadata(
    act: str, folder: Callable[[str], Path], free: Free, confined: Confined
) -> None:
    at = folder("granted")
    os.setxattr(at / "file", "user.y", b"y")
    others = [(operation, at) for operation in OPERATIONS if operation != "modify"]
    assert confined(_on(METADATA[act], at), *others) == "EPERM"
    assert confined(_on(METADATA[act], at), *others, ("modify", at / "folder")) == "EPERM"
    assert free(_on(METADATA[act], at)) == "allowed"


@pytest.mark.parametrize("act", METADATA)
def test_modify_changes_metadata_through_the_broker(
    act: str, folder: Callable[[str], Path], confined: Confined
) -> None:
    at = folder("granted")
    os.setxattr(at / "file", "user.y", b"y")
    assert confined(_on(METADATA[act], at), ("modify", at), ("read", at)) == "allowed"


def test_what_the_broker_changed_is_what_was_asked_for(
    folder: Callable[[str], Path], confined: Confined
) -> None:
    at = folder("granted")

    def change() -> None:
        (at / "file").chmod(0o640)
        os.utime(at / "file", ns=(123456789, 987654321))
        os.setxattr(at / "file", "user.name", b"value\0more")
        os.chown(at / "folder", os.getuid(), os.getgid())

    assert confined(change, ("modify", at)) == "allowed"
    status = (at / "file").stat()
    assert status.st_mode & 0o7777 == 0o640
    assert (status.st_atime_ns, status.st_mtime_ns) == (123456789, 987654321)
    assert os.getxattr(at / "file", "user.name") == b"value\0more"


def test_a_time_can_be_left_as_it_is(folder: Callable[[str], Path], launch: Launch) -> None:
    at = folder("granted")
    os.utime(at / "file", (1000, 2000))
    launch("--modify", at, "--", "touch", "-a", "-d", "@3000", at / "file")
    status = (at / "file").stat()
    assert (status.st_atime, status.st_mtime) == (3000, 2000)


@pytest.mark.parametrize("bits", [0o4755, 0o2755, 0o6755])
def test_nobody_who_is_confined_makes_a_program_that_lends_rights(
    bits: int, folder: Callable[[str], Path], free: Free, confined: Confined
) -> None:
    at = folder("granted")
    acts: list[Action] = [
        lambda: (at / "file").chmod(bits),
        lambda: os.close(os.open(at / "new", os.O_CREAT | os.O_WRONLY | os.O_EXCL, bits)),
        lambda: os.mknod(at / "node", bits | 0o100000),
    ]
    for act in acts:
        everything = [(operation, at) for operation in OPERATIONS]
        assert confined(act, *everything) in {"EPERM", "EACCES"}
        assert confined(act, ("create", at)) in {"EPERM", "EACCES"}
        assert free(act) == "allowed"


SINGLE: dict[str, tuple[Act, str, str]] = {
    "remove one file": (lambda at: (at / "file").unlink(), "delete", "file"),
    "remove the folder itself": (lambda at: (at / "empty").rmdir(), "delete", "empty"),
    "make one file": (lambda at: (at / "new").write_text("x"), "create", "new"),
    "make one folder": (lambda at: (at / "new").mkdir(), "create", "new"),
}


@pytest.mark.parametrize("act", SINGLE)
def test_a_rule_for_one_name_is_brokered_and_holds_for_that_name(
    act: str, folder: Callable[[str], Path], free: Free, confined: Confined
) -> None:
    do, operation, name = SINGLE[act]
    at = folder("granted")
    assert free(_on(do, folder("control"))) == "allowed"
    assert confined(_on(do, at), (operation, at / "folder/file")) == "EACCES"
    assert confined(_on(do, at), (operation, at / name)) == "allowed"


def test_create_does_not_follow_a_link_out(
    folder: Callable[[str], Path], free: Free, confined: Confined
) -> None:
    inside, outside = folder("inside"), folder("outside")
    (inside / "way").symlink_to(outside / "new")
    (inside / "road").symlink_to(outside)

    def through(name: str) -> Action:
        return lambda: (inside / name).write_text("x")

    for name in ("way", "road/new"):
        assert confined(through(name), ("create", inside)) == "EACCES"
        assert not (outside / "new").exists()
        assert free(through(name)) == "allowed"
        (outside / "new").unlink()


def test_the_umask_of_the_command_counts(folder: Callable[[str], Path], confined: Confined) -> None:
    at = folder("granted")

    def make() -> None:
        os.umask(0o027)
        os.close(os.open(at / "new", os.O_CREAT | os.O_WRONLY, 0o777))

    assert confined(make, ("create", at)) == "allowed"
    assert (at / "new").stat().st_mode & 0o777 == 0o750


@pytest.mark.needs("root")
def test_the_broker_does_not_act_for_somebody_else(
    folder: Callable[[str], Path], confined: Confined
) -> None:
    at = folder("granted")

    def make() -> None:
        os.setuid(65534)
        (at / "new").write_text("x")

    assert confined(make, ("create", at)) in {"EPERM", "EACCES"}
    assert not (at / "new").exists()


@pytest.mark.needs("root")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_nobody_who_is_confined_makes_a_device(
    operation: str, tmp_path: Path, free: Free, confined: Confined
) -> None:
    def make() -> None:
        os.mknod(tmp_path / "null", 0o20666, os.makedev(1, 3))

    assert confined(make, (operation, tmp_path)) in {"EACCES", "EPERM"}
    assert free(make) == "allowed"


@pytest.mark.needs("root")
@pytest.mark.parametrize(("operation", "flags"), [("read", os.O_RDONLY), ("modify", os.O_WRONLY)])
def test_a_device_opens_with_its_operation(
    operation: str, flags: int, tmp_path: Path, free: Free, confined: Confined
) -> None:
    device = tmp_path / "zero"
    os.mknod(device, 0o20666, os.makedev(1, 5))

    def act() -> None:
        os.close(os.open(device, flags))

    if free(act) != "allowed":
        pytest.skip("the host keeps devices from this file system")
    others = [(each, device) for each in ("read", "modify") if each != operation]
    assert confined(act, *others) == "EACCES"
    assert confined(act, (operation, device)) == "allowed"
    assert confined(act, (operation, tmp_path)) == "allowed"


def test_nothing_moves_from_narrow_to_wide(
    folder: Callable[[str], Path], free: Free, confined: Confined
) -> None:
    """A file that may only be read stays so, wherever it is moved or linked to."""
    narrow, wide = folder("narrow"), folder("wide")
    grants = [("read", narrow), ("delete", narrow), *((each, wide) for each in OPERATIONS)]
    move: Action = lambda: (narrow / "file").rename(wide / "moved")  # noqa: E731
    link: Action = lambda: os.link(narrow / "file", wide / "linked")  # noqa: E731
    for act in (move, link):
        assert confined(act, *grants) in {"EXDEV", "EACCES"}
    assert free(link) == "allowed"
    assert free(move) == "allowed"
