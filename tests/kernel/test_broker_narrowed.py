"""A process that narrows itself with Landlock of its own: the broker gives it nothing back.

The kernel would ask the new layer about an act. The broker is outside of that layer, so that what
it did in such a process's name nobody would have judged.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.people import answering

from democrai_osguard_launcher import kernel, landlock
from democrai_osguard_launcher.enforcement import CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Confined, Free, Grant, Launch

    Action = Callable[[], object]

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

MAKING = landlock.OPERATION_RIGHTS["create"] | landlock.OPERATION_RIGHTS["delete"]


def narrow() -> None:
    """Give up making and removing names, and connecting, with a layer that has no rules."""
    abilities = landlock.abilities(kernel.landlock_abi())
    handled = MAKING & abilities.filesystem, landlock.CONNECT_TCP & abilities.network
    ruleset = kernel.create_ruleset(*handled, 0)
    kernel.set_no_new_privs()
    kernel.restrict_self(ruleset, 0)
    os.close(ruleset)


def child(action: Action, fork: Callable[[], int] = os.fork) -> None:
    """Do it in a process that this one starts, and raise what it raised."""
    reader, writer = os.pipe()
    if fork() == 0:
        code = 0
        try:
            action()
        except OSError as error:
            code = error.errno or errno.EIO
        finally:
            os.write(writer, bytes([code]))
            os._exit(0)
    os.close(writer)
    said = os.read(reader, 1)
    os.close(reader)
    if said != b"\0":
        raise OSError(said[0] if said else errno.EIO, "in the child")


def in_turn(*actions: Action) -> Action:
    """Return an action of several."""

    def act() -> None:
        for action in actions:
            action()

    return act


def after_narrowing(act: Action) -> Action:
    return in_turn(narrow, act)


HEIRS: dict[str, Callable[[Action], Action]] = {
    "itself": after_narrowing,
    "its child": lambda act: in_turn(narrow, lambda: child(act)),
    "its grandchild": lambda act: in_turn(narrow, lambda: child(lambda: child(act))),
    "another's child": lambda act: in_turn(narrow, lambda: child(act, kernel.fork_sibling)),
    "a child that limits itself": lambda act: in_turn(narrow, lambda: child(in_turn(limit, act))),
}


def limit() -> None:
    """Change every limit that a process can still change, with the capabilities of a command."""
    kernel.keep_capabilities(CAPABILITIES)
    for number in range(16):
        soft, hard = resource.getrlimit(number)
        if number not in {resource.RLIMIT_AS, resource.RLIMIT_STACK, resource.RLIMIT_NOFILE}:
            for wanted in ((hard, hard), (soft, hard), (819200, 819200)):
                try:
                    resource.setrlimit(number, wanted)
                except (OSError, ValueError):
                    continue


def acts_in(folder: Path) -> dict[str, tuple[Grant, Action]]:
    (folder / "file").touch()
    (folder / "empty").mkdir()
    new = folder / "new"
    return {
        "create": (("create", folder), lambda: os.close(os.open(new, os.O_CREAT | os.O_WRONLY))),
        "mkdir": (("create", new), lambda: os.mkdir(new)),
        "mkfifo": (("create", new), lambda: os.mkfifo(new)),
        "symlink": (("create", new), lambda: os.symlink("x", new)),
        "unlink": (("delete", folder / "file"), lambda: os.unlink(folder / "file")),
        "rmdir": (("delete", folder / "empty"), lambda: os.rmdir(folder / "empty")),
    }


@pytest.mark.parametrize("act", ["create", "mkdir", "mkfifo", "symlink", "unlink", "rmdir"])
def test_what_it_gave_up_stays_given_up(
    act: str, tmp_path: Path, free: Free, confined: Confined
) -> None:
    rule, do = acts_in(tmp_path)[act]
    before = sorted(os.listdir(tmp_path))
    assert confined(after_narrowing(do), rule) == "EACCES"
    assert free(after_narrowing(do)) == "EACCES"
    assert sorted(os.listdir(tmp_path)) == before
    assert confined(do, rule) == "allowed"
    assert sorted(os.listdir(tmp_path)) != before


@pytest.mark.parametrize("heir", HEIRS)
def test_so_it_does_for_whatever_it_starts(heir: str, tmp_path: Path, confined: Confined) -> None:
    new = tmp_path / "new"
    rules: list[Grant] = [("create", new)]
    assert confined(HEIRS[heir](lambda: os.mkdir(new)), *rules) == "EACCES"
    assert not new.exists()
    assert confined(lambda: child(lambda: os.mkdir(new)), *rules) == "allowed"
    assert new.exists()


def test_who_is_not_narrowed_goes_on_as_ever(tmp_path: Path, confined: Confined) -> None:
    def act() -> None:
        child(narrow)
        os.mkdir(tmp_path / "new")
        child(lambda: os.rmdir(tmp_path / "new"))

    new = tmp_path / "new"
    assert confined(act, ("create", new), ("delete", new)) == "allowed"


def connect(port: int) -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", port))


def test_it_is_connected_to_nobody(free: Free, confined: Confined) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        rule = ("connect", f"127.0.0.1:{port}")
        assert confined(after_narrowing(lambda: connect(port)), rule) == "EACCES"
        assert confined(lambda: connect(port), rule) == "allowed"
        if kernel.landlock_abi() >= 4:  # before, the kernel itself does not see connections
            assert free(after_narrowing(lambda: connect(port))) == "EACCES"


def test_what_it_has_open_it_can_use(confined: Confined) -> None:
    def act() -> None:
        one, other = socket.socketpair()
        narrow()
        socket.send_fds(one, [b"hello"], [0])
        said, numbers, _, _ = socket.recv_fds(other, 10, 1)
        assert (said, len(numbers)) == (b"hello", 1)

    assert confined(act, ("connect", "127.0.0.1:1")) == "allowed"


SCRIPT = """
import os, sys
from democrai_osguard_launcher import kernel
{0}
try:
    os.mkdir("new")
    print("done")
except OSError as error:
    print(type(error).__name__)
"""
NARROWING = """
ruleset = kernel.create_ruleset(1 << 7, 0, 0)
kernel.restrict_self(ruleset, 0)
"""


@pytest.mark.parametrize(
    ("narrowing", "said", "question"),
    [("", "done\n", ["create new"]), (NARROWING, "PermissionError\n", [])],
)
def test_nobody_is_asked_about_it(
    narrowing: str, said: str, question: list[str], launch: Launch, tmp_path: Path
) -> None:
    packages = os.path.dirname(os.path.dirname(kernel.__file__))
    script = f"import sys; sys.path.insert(0, {packages!r})" + SCRIPT.format(narrowing)
    with answering(lambda _: "yes") as (desk, asked):
        result = launch(
            "--supervised", "--subject", "tool:t", "--ask-fd", str(desk), "--read", packages,
            "--", sys.executable, "-I", "-B", "-c", script, cwd=tmp_path, keep=(desk,),
        )  # fmt: skip
    assert result.stdout == said, result.stderr
    assert asked == question


def test_a_launch_inside_a_launch_narrows_what_the_broker_does(
    launch: Launch, tmp_path: Path
) -> None:
    program = os.path.realpath("/usr/bin/mkdir")
    packages = os.path.dirname(os.path.dirname(kernel.__file__))
    rules: list[str | Path] = ["--read", packages, "--execute", program, "--create", tmp_path]
    inner = """import os, runpy
os.environ["DEMOCRAI_ACCESS"] = "[]"
runpy.run_module("democrai_osguard_launcher", run_name="__main__")
"""
    making = ["--", program, str(tmp_path / "new")]
    result = launch(*rules, "--", sys.executable, "-c", inner, *making)
    assert "Permission denied" in result.stderr
    assert not (tmp_path / "new").exists()
    assert launch(*rules, *making).returncode == 0
    assert (tmp_path / "new").exists()
