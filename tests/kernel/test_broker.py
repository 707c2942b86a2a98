"""The broker where it could go wrong: odd arguments, odd callers, many at once."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from kernel.techniques import LIBC, call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Action, Confined, Launch

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

CREATE = os.O_CREAT | os.O_WRONLY


@pytest.mark.parametrize("address", [1, 2**47 - 8, 2**63])
def test_a_wild_pointer_is_the_callers_fault(
    address: int, tmp_path: Path, confined: Confined
) -> None:
    def act() -> None:
        call(257, -100, ctypes.c_void_p(address), CREATE, 0o600)

    assert confined(act, ("create", tmp_path)) == "EFAULT"


def test_a_name_that_is_too_long_is_refused_as_ever(tmp_path: Path, confined: Confined) -> None:
    long_name = tmp_path / ("x" * 300)
    assert confined(lambda: os.open(long_name, CREATE), ("create", tmp_path)) == "ENAMETOOLONG"
    endless = str(tmp_path) + "/x" * 3000
    assert confined(lambda: os.open(endless, CREATE), ("create", tmp_path)) == "ENAMETOOLONG"


def test_a_name_relative_to_a_descriptor(tmp_path: Path, confined: Confined) -> None:
    def act() -> None:
        folder = os.open(tmp_path, os.O_PATH)
        os.close(os.open("one", CREATE, dir_fd=folder))
        os.chdir(tmp_path)
        os.close(os.open("two", CREATE))
        os.mkdir("three", dir_fd=folder)

    assert confined(act, ("create", tmp_path)) == "allowed"
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two", "three"}


def test_a_descriptor_that_is_not_open_is_an_error(tmp_path: Path, confined: Confined) -> None:
    assert confined(lambda: os.open("one", CREATE, dir_fd=999), ("create", tmp_path)) == "EBADF"
    assert confined(lambda: os.fchmod(999, 0o600), ("modify", tmp_path)) == "EBADF"


def test_bytes_that_are_no_text_survive(tmp_path: Path, confined: Confined) -> None:
    name = os.fsencode(tmp_path) + b"/\xff\xfe"
    assert confined(lambda: os.close(os.open(name, CREATE)), ("create", tmp_path)) == "allowed"
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff\xfe"]


def test_flags_arrive_with_the_descriptor(tmp_path: Path, confined: Confined) -> None:
    def act() -> None:
        kept = os.open(tmp_path / "a", CREATE | os.O_APPEND | os.O_CLOEXEC)
        assert not os.get_inheritable(kept)
        os.write(kept, b"x")
        raw = call(257, -100, os.fsencode(tmp_path / "b"), CREATE, 0o600)
        assert os.get_inheritable(raw)

    assert confined(act, ("create", tmp_path)) == "allowed"


def test_too_many_open_files_is_said_to_the_caller(tmp_path: Path, confined: Confined) -> None:
    def act() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        os.open(tmp_path / "a", CREATE)

    assert confined(act, ("create", tmp_path)) == "EMFILE"


def test_a_caller_that_hides_its_memory_creates_nothing(tmp_path: Path, confined: Confined) -> None:
    def act() -> None:
        LIBC.prctl(4, 0)
        os.open(tmp_path / "a", CREATE)

    verdict = confined(act, ("create", tmp_path), uid=65534 if os.geteuid() == 0 else None)
    assert verdict == "EACCES"


def test_many_threads_and_processes_at_once(tmp_path: Path, confined: Confined) -> None:
    def work(start: int) -> None:
        for number in range(start, start + 50):
            os.close(os.open(tmp_path / str(number), CREATE | os.O_EXCL))

    def act() -> None:
        child = os.fork()
        offset = 0 if child else 1000
        threads = [threading.Thread(target=work, args=(offset + n * 100,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

    assert confined(act, ("create", tmp_path)) == "allowed"
    assert len(list(tmp_path.iterdir())) == 400


def test_a_caller_that_dies_while_waiting_hurts_nobody(tmp_path: Path, confined: Confined) -> None:
    def act() -> None:
        for _ in range(20):
            child = os.fork()
            while child == 0:
                # One that was killed between these two leaves a file, which must not be changed.
                with contextlib.suppress(PermissionError):
                    os.close(os.open(tmp_path / "a", CREATE))
                (tmp_path / "a").unlink()
            os.sched_yield()
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(os.open(tmp_path / "b", CREATE))

    assert confined(act, ("create", tmp_path), ("delete", tmp_path)) == "allowed"


def test_a_timer_does_not_break_a_brokered_call(tmp_path: Path, confined: Confined) -> None:
    def act() -> None:
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for number in range(200):
            os.close(os.open(tmp_path / str(number), CREATE | os.O_EXCL))
        signal.setitimer(signal.ITIMER_REAL, 0)

    assert confined(act, ("create", tmp_path)) == "allowed"


def test_output_to_a_device_still_works(launch: Launch, tmp_path: Path) -> None:
    script = "echo a > /dev/null; echo b > /dev/stdout; echo c > /dev/stderr; echo d > /dev/fd/1"
    result = launch("--create", tmp_path, "--", "sh", "-c", script)
    assert (result.stdout.split(), result.stderr) == (["b", "d"], "c\n")


@pytest.mark.parametrize("attribute", ["security.capability", "trusted.x", "system.x"])
def test_only_plain_attributes_are_set(attribute: str, tmp_path: Path, confined: Confined) -> None:
    (tmp_path / "file").write_text("x")
    verdict = confined(
        lambda: os.setxattr(tmp_path / "file", attribute, b"x"), ("modify", tmp_path)
    )
    assert verdict == errno.errorcode[errno.EOPNOTSUPP]


def test_a_rule_stays_where_it_led_at_the_start(tmp_path: Path, confined: Confined) -> None:
    """The command replaces a folder of its own by a link: the rule does not follow it."""
    outside, above = tmp_path / "outside", tmp_path / "above"
    for folder in (outside, above, above / "inner"):
        folder.mkdir()

    def act() -> None:
        (above / "inner").rmdir()
        (above / "inner").symlink_to(outside)
        os.close(os.open(above / "inner/new", CREATE))

    grants = [("create", above), ("delete", above), ("create", above / "inner")]
    assert confined(act, *grants) == "EACCES"
    assert not list(outside.iterdir())


SLASHES: dict[str, tuple[str, Callable[[Path], object], Callable[[Path], bool]]] = {
    "make": ("create", lambda at: os.mkdir(f"{at}/new/"), lambda at: (at / "new").is_dir()),
    "make, twice": ("create", lambda at: os.mkdir(f"{at}/new//"), lambda at: (at / "new").is_dir()),
    "remove": (
        "delete",
        lambda at: os.rmdir(f"{at}/empty/"),
        lambda at: not (at / "empty").exists(),
    ),
}


@pytest.mark.parametrize("act", SLASHES)
def test_a_slash_may_follow_the_name_of_a_folder(
    act: str, tmp_path: Path, confined: Confined
) -> None:
    operation, do, is_done = SLASHES[act]
    name = tmp_path / ("new" if operation == "create" else "empty")
    (tmp_path / "empty").mkdir()
    assert confined(lambda: do(tmp_path), (operation, tmp_path / "another")) == "EACCES"
    assert not is_done(tmp_path)
    assert confined(lambda: do(tmp_path), (operation, name)) == "allowed"
    assert is_done(tmp_path)


def test_a_slash_after_the_name_of_anything_else_is_an_error_as_ever(
    tmp_path: Path, confined: Confined
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("file")
    attempts = {
        "unlink": (lambda: os.unlink(f"{tmp_path}/file/"), "ENOTDIR"),
        "rmdir": (lambda: os.rmdir(f"{tmp_path}/link/"), "ENOTDIR"),
        "open": (lambda: os.open(f"{tmp_path}/new/", CREATE), "EISDIR"),
        "symlink": (lambda: os.symlink("x", f"{tmp_path}/new/"), "ENOENT"),
        "mknod": (lambda: os.mknod(f"{tmp_path}/new/"), "ENOENT"),
        "mkdir": (lambda: os.mkdir(f"{tmp_path}/link/"), "EEXIST"),
        "dots": (lambda: os.rmdir(f"{tmp_path}/folder/./"), "EINVAL"),
    }
    grants = [(each, tmp_path / name) for each in ("create", "delete")
              for name in ("file", "link", "new", "folder")]  # fmt: skip
    found = {name: confined(act, *grants) for name, (act, _) in attempts.items()}
    assert found == {name: expected for name, (_, expected) in attempts.items()}
    assert (tmp_path / "folder").is_dir()


@pytest.mark.parametrize("content", ["new", "./new", "chain", "{folder}/new"])
def test_a_link_to_nothing_leads_to_what_is_made(
    content: str, tmp_path: Path, confined: Confined
) -> None:
    (tmp_path / "chain").symlink_to("new")
    (tmp_path / "link").symlink_to(content.format(folder=tmp_path))

    def act() -> None:
        os.close(os.open(tmp_path / "link", CREATE))

    assert confined(act, ("create", tmp_path / "link")) == "EACCES"
    assert not (tmp_path / "new").exists()
    assert confined(act, ("create", tmp_path / "new")) == "allowed"
    assert (tmp_path / "new").is_file()
    assert confined(act, ("create", tmp_path / "new")) == "EACCES", "what exists is not changed"


def test_a_link_to_nothing_outside_the_rules_makes_nothing(
    tmp_path: Path, confined: Confined
) -> None:
    for folder in ("in", "out"):
        (tmp_path / folder).mkdir()
    for name, content in {"link": "../out/new", "loop": "loop", "own": "/proc/self/new"}.items():
        (tmp_path / "in" / name).symlink_to(content)

    def act(name: str, flags: int = 0) -> Action:
        return lambda: os.close(os.open(tmp_path / "in" / name, CREATE | flags))

    grant = ("create", tmp_path / "in")
    assert confined(act("link"), grant) == "EACCES"
    assert confined(act("link", os.O_EXCL), grant) == "EEXIST"
    assert confined(act("link", os.O_NOFOLLOW), grant) == "ELOOP"
    assert confined(act("loop"), grant) == "ELOOP"
    assert confined(act("own"), grant) in {"ENOENT", "EACCES"}
    assert not list((tmp_path / "out").iterdir())


CLIMBING = ["in/../out/new", "in/deep/../../out/new", "in/./../out/new", "in//..//out/new"]


@pytest.mark.parametrize("path", CLIMBING)
def test_dots_lead_where_they_lead(path: str, tmp_path: Path, confined: Confined) -> None:
    """A text that begins like the folder of a rule is not beneath it for that."""
    for folder in ("in/deep", "out"):
        (tmp_path / folder).mkdir(parents=True)

    def act() -> None:
        os.close(os.open(f"{tmp_path}/{path}", CREATE))

    assert confined(act, ("create", tmp_path / "in")) == "EACCES"
    assert not list((tmp_path / "out").iterdir())
    assert confined(act, ("create", tmp_path / "out")) == "allowed", "it shows nothing otherwise"


@pytest.mark.parametrize("path", ["in/./new", "in//new", "in/..new", "in/deep/../new", "in/.new"])
def test_odd_ways_to_say_a_name_lead_to_it(path: str, tmp_path: Path, confined: Confined) -> None:
    (tmp_path / "in/deep").mkdir(parents=True)

    def act() -> None:
        os.close(os.open(f"{tmp_path}/{path}", CREATE))

    assert confined(act, ("create", tmp_path / "in")) == "allowed"
    assert (tmp_path / "in" / os.path.basename(path)).is_file()


@pytest.mark.parametrize("relative", [False, True])
def test_what_is_made_to_be_read_needs_a_rule_that_reads(
    tmp_path: Path, confined: Confined, *, relative: bool
) -> None:
    def act() -> None:
        os.chdir(tmp_path)
        os.close(os.open("new" if relative else tmp_path / "new", os.O_CREAT | os.O_RDWR))

    assert confined(act, ("create", tmp_path)) == "EACCES"
    assert not (tmp_path / "new").exists(), "what is refused leaves nothing behind"
    assert confined(act, ("create", tmp_path), ("read", tmp_path)) == "allowed"
    assert (tmp_path / "new").is_file()
