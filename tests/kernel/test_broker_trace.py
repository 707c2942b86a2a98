"""Traced runs: each refusal is written down with the rule that was missing, and nothing changes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest
from command_line import osguard
from kernel.conftest import in_a_fork, plan_for
from kernel.folder_acts import ACTS, ALSO_OPENED_BY, METADATA, OPERATIONS

from democrai_osguard_launcher.watch import REFUSED, Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Action, Grant, Launch

    Missing = set[tuple[str, str | None]]

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")


def traced(action: Action, grants: list[Grant], file: Path) -> tuple[str, Missing]:
    """Run the action under the grants, traced; return what came of it and what was missing."""
    plan = plan_for(grants)

    def after_an_exec() -> None:
        # What comes before the command's exec is the launcher's own affair, and is not traced.
        with contextlib.suppress(FileNotFoundError):
            os.execv("/nonexistent/program", ["program"])  # noqa: S606 - it cannot succeed
        action()

    descriptor = os.open(file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    try:
        watch = Watch(descriptor, plan, command=("test",), mode=REFUSED)
        verdict = in_a_fork(after_an_exec, plan, companion=watch)
    finally:
        os.close(descriptor)
    lines = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    found = [line["missing"] for line in lines]
    own = [each for each in found if not _is_import(each["target"] or "")]
    return verdict, {(each["operation"], each["target"]) for each in own}


def _is_import(target: str) -> bool:
    """Tell whether Python opens it when it likes: a module, or a folder where it looks for one."""
    return target.endswith((".py", ".pyc")) or target in sys.path_importer_cache


@pytest.mark.parametrize("act", ACTS)
def test_the_trace_names_exactly_what_was_missing(
    act: str, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    do, needed = ACTS[act]
    verdict, missing = traced(partial(do, folder("without any")), [], tmp_path / "trace")
    assert verdict == "EACCES"
    assert {operation for operation, _ in missing} == needed
    for lacking in needed:
        at = folder(f"without {lacking}")
        others = set(OPERATIONS) - {lacking} - ALSO_OPENED_BY.get(lacking, set())
        grants: list[Grant] = [(operation, at) for operation in others]
        verdict, missing = traced(partial(do, at), grants, tmp_path / "trace")
        assert verdict == "EACCES", "a traced run refuses what any other run refuses"
        assert {operation for operation, _ in missing} == {lacking}
    at = folder("granted")
    everything: list[Grant] = [(operation, at) for operation in needed]
    assert traced(partial(do, at), everything, tmp_path / "trace") == ("allowed", set())


@pytest.mark.parametrize("act", ACTS)
def test_what_the_trace_names_is_enough(
    act: str, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    do, _ = ACTS[act]
    at = folder("granted")
    _, missing = traced(lambda: do(at), [], tmp_path / "trace")
    grants: list[Grant] = [(operation, str(target)) for operation, target in missing]
    assert traced(lambda: do(at), grants, tmp_path / "trace") == ("allowed", set())


@pytest.mark.parametrize("act", METADATA)
def test_metadata_is_traced_as_modify(
    act: str, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    at = folder("granted")
    os.setxattr(at / "file", "user.y", b"y")
    for grants in ([("read", at)], [("read", at), ("modify", at / "folder")]):
        verdict, missing = traced(lambda: METADATA[act](at), list(grants), tmp_path / "trace")
        assert verdict == "EPERM"
        assert {operation for operation, _ in missing} == {"modify"}


@pytest.mark.parametrize("brokered", [True, False])
def test_the_loader_as_a_program_is_explained_where_it_is_refused(
    tmp_path: Path, *, brokered: bool
) -> None:
    loader = os.path.realpath("/lib64/ld-linux-x86-64.so.2")

    def start() -> None:
        child = os.posix_spawn(loader, [loader, "/usr/bin/true"], {})
        assert os.waitpid(child, 0)[1] == 0

    grants: list[Grant] = [("read", "/usr/bin/true")]
    grants += [("create", tmp_path)] if brokered else []
    expected = ("EACCES", {("execute", loader)}) if brokered else ("allowed", set())
    assert traced(start, grants, tmp_path / "trace") == expected
    assert traced(start, [*grants, ("execute", loader)], tmp_path / "trace") == ("allowed", set())


def test_a_move_to_a_place_with_more_rights_is_explained(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    narrow, wide = folder("narrow"), folder("wide")
    grants: list[Grant] = [("read", narrow), ("delete", narrow)]
    grants += [(operation, wide) for operation in OPERATIONS]

    def move() -> None:
        (narrow / "file").rename(wide / "moved")

    verdict, missing = traced(move, grants, tmp_path / "trace")
    assert verdict in {"EXDEV", "EACCES"}
    assert {operation for operation, _ in missing} == {"modify", "execute"}
    grants += [(operation, narrow) for operation, _ in missing]
    assert traced(move, grants, tmp_path / "trace") == ("allowed", set())


def test_a_folder_gains_more_than_a_file(folder: Callable[[str], Path], tmp_path: Path) -> None:
    narrow, wide = folder("narrow"), folder("wide")
    grants: list[Grant] = [("delete", narrow)]
    grants += [(operation, wide) for operation in OPERATIONS]

    def move() -> None:
        (narrow / "folder").rename(wide / "moved")

    verdict, missing = traced(move, grants, tmp_path / "trace")
    assert verdict in {"EXDEV", "EACCES"}
    assert {operation for operation, _ in missing} == {"read", "create", "modify", "execute"}
    grants += [(operation, target or "") for operation, target in missing]
    assert traced(move, grants, tmp_path / "trace") == ("allowed", set())


def test_a_second_name_in_another_folder_needs_the_first_ones_folder(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    source, target = folder("source"), folder("target")

    def link() -> None:
        os.link(source / "file", target / "linked")

    grants: list[Grant] = [("create", target)]
    verdict, missing = traced(link, grants, tmp_path / "trace")
    assert verdict in {"EXDEV", "EACCES"}
    assert missing == {("read", str(source))}
    grants += [("read", source)]
    assert traced(link, grants, tmp_path / "trace") == ("allowed", set())


def test_what_fails_by_itself_is_no_refusal(tmp_path: Path) -> None:
    attempts: list[Action] = [
        lambda: os.open(tmp_path / "nothing", os.O_RDONLY),
        lambda: os.open(tmp_path / "no/such/folder", os.O_CREAT | os.O_WRONLY),
        lambda: os.unlink(tmp_path / "nothing"),
        lambda: os.open(tmp_path, os.O_WRONLY),
    ]

    def act() -> None:
        for attempt in attempts:
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                attempt()

    assert traced(act, [], tmp_path / "trace") == ("allowed", set())


def test_a_socket_that_no_rule_needs(tmp_path: Path) -> None:
    verdict, missing = traced(socket.socket, [], tmp_path / "trace")
    assert (verdict, missing) == ("EACCES", {("connect", None)})
    verdict, missing = traced(lambda: socket.socket(socket.AF_UNIX), [], tmp_path / "trace")
    assert (verdict, missing) == ("EACCES", {("modify", None)})


@pytest.mark.needs("landlock-tcp")
def test_a_port_that_no_rule_names(tmp_path: Path) -> None:
    def connect(port: int) -> Action:
        return lambda: socket.socket().connect(("127.0.0.1", port))

    one, two = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    with one, two:
        open_port, closed_port = one.getsockname()[1], two.getsockname()[1]
        grants: list[Grant] = [("connect", f"127.0.0.1:{open_port}")]
        assert traced(connect(open_port), grants, tmp_path / "trace") == ("allowed", set())
        verdict, missing = traced(connect(closed_port), grants, tmp_path / "trace")
    assert (verdict, missing) == ("EACCES", {("connect", f"127.0.0.1:{closed_port}")})


SCRIPT = """
cat secret/file
echo '{"missing": {"resource_type": "filesystem", "operation": "read", "target": "/"}}'
ls -l /proc/self/fd >&2
"""


def test_why_tells_the_line_that_then_works(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/file").write_text("what is in it\n")
    trace = tmp_path / "trace"
    rules = ["--execute", "/usr/bin/cat", "--execute", "/usr/bin/ls", "--read", "/proc"]
    refused = launch("--trace", trace, *rules, "--", "sh", "-c", SCRIPT, cwd=tmp_path)
    assert "what is in it" not in refused.stdout
    assert "->" in refused.stderr
    assert str(trace) not in refused.stderr, "the command holds the trace open"
    told = osguard("why", str(trace))
    assert told.returncode == 1
    assert "cat (process " in told.stdout
    assert f'"operation": "read", "target": "{tmp_path}/secret/file"' in told.stdout
    assert not re.search(r"access: .*\"target\": \"/\"", told.stdout), "output is not believed"
    had = json.loads(trace.read_text().splitlines()[0])["access"]
    assert [(each["operation"], each["target"]) for each in had] == [
        ("execute", "/usr/bin/cat"), ("execute", "/usr/bin/ls"), ("read", "/proc"),
    ]  # fmt: skip
    document = json.loads(osguard("why", "--json", str(trace)).stdout)
    missing = [each["missing"] for each in document["refused"]]
    access = json.dumps([each for each in missing if each["target"]])
    again = launch(
        "--trace", trace, *rules, "--", "cat", "secret/file", cwd=tmp_path, access=access
    )
    assert (again.stdout, again.stderr) == ("what is in it\n", "")
    assert "Nothing was refused" in osguard("why", str(trace)).stdout


def test_a_trace_that_cannot_be_written_is_said_before_anything_runs(
    launch: Launch, tmp_path: Path
) -> None:
    refused = launch("--trace", tmp_path / "no/such", "--", "touch", tmp_path / "ran")
    assert (refused.returncode, (tmp_path / "ran").exists()) == (64, False)
    both = launch("--trace", tmp_path / "a", "--observe", tmp_path / "b", "--", "true")
    assert both.returncode == 64


def test_a_link_has_its_rule_at_its_folder(folder: Callable[[str], Path], tmp_path: Path) -> None:
    at = folder("granted")

    def act() -> None:
        os.lchown(at / "link", os.getuid(), os.getgid())

    grants: list[Grant] = [("read", at), ("modify", at / "file")]
    verdict, missing = traced(act, grants, tmp_path / "trace")
    assert (verdict, missing) == ("EPERM", {("modify", str(at))})
    assert traced(act, [("modify", at)], tmp_path / "trace") == ("allowed", set())


def test_a_rule_at_a_link_to_nothing_is_not_one_for_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("new")
    grants: list[Grant] = [("create", tmp_path / "link")]

    def act() -> None:
        os.close(os.open(tmp_path / "link", os.O_CREAT | os.O_WRONLY))

    verdict, missing = traced(act, grants, tmp_path / "trace")
    assert (verdict, missing) == ("EACCES", {("create", str(tmp_path / "new"))})
    grants = [("create", tmp_path / "new")]
    assert traced(act, grants, tmp_path / "trace") == ("allowed", set())


@pytest.mark.parametrize("act", ["mkdir", "rmdir"])
def test_slashes_hide_no_refusal(act: str, tmp_path: Path) -> None:
    (tmp_path / "a/sub").mkdir(parents=True)
    operation, name = {"mkdir": ("create", "a/new"), "rmdir": ("delete", "a/sub")}[act]

    def do() -> None:
        getattr(os, act)(f"{tmp_path}/{name}/")

    grants: list[Grant] = [(operation, tmp_path / "a/other")]
    verdict, missing = traced(do, grants, tmp_path / "trace")
    assert (verdict, missing) == ("EACCES", {(operation, str(tmp_path / name))})
    grants = [(operation, tmp_path / name)]
    assert traced(do, grants, tmp_path / "trace") == ("allowed", set())


def test_a_file_that_is_made_to_be_read_needs_both(tmp_path: Path) -> None:
    """As programs open files that they only lock."""
    place = tmp_path / "place"
    place.mkdir()

    def act() -> None:
        os.open(place / "lock", os.O_RDONLY | os.O_CREAT | os.O_EXCL)

    verdict, missing = traced(act, [], tmp_path / "trace")
    needed = {("create", str(place / "lock")), ("read", str(place / "lock"))}
    assert (verdict, missing) == ("EACCES", needed)
    verdict, missing = traced(act, [("create", place), ("read", place)], tmp_path / "trace")
    assert (verdict, missing) == ("allowed", set())


def test_a_trace_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    """Its reader is gone, or the disk is full: the command is refused what it always was."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "own").write_text("own")
    plan = plan_for([("read", tmp_path / "own")])
    reader, writer = os.pipe()
    try:
        watch = Watch(writer, plan, command=("test",), mode=REFUSED)
    finally:
        os.close(reader)

    def act() -> None:
        with contextlib.suppress(FileNotFoundError):
            os.execv("/nonexistent/program", ["program"])  # noqa: S606 - it cannot succeed
        for _ in range(3):
            assert (tmp_path / "own").read_text() == "own"
            with pytest.raises(PermissionError):
                (tmp_path / "file").read_text()

    try:
        assert in_a_fork(act, plan, companion=watch) == "allowed"
    finally:
        os.close(writer)
