"""What the guard remembers about paths never outlives a change of where they lead.

Each case reads a path until it is remembered, changes what lies beneath it, and reads again. The
change alone must turn the answer, so each case also runs without a guard, where it does.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard.access import Rule
from democrai_osguard.guard import process_guard_context, use_approvals
from democrai_osguard.guard.sealed import paths

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from democrai_osguard.access import AccessRequest

DENIED = "sandbox_filesystem_denied"
_ALL = ("read", "create", "modify", "delete")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with an allowed and a forbidden part, laid out alike."""
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    for part, text in (("in", "fine"), ("out", "secret")):
        (tmp_path / part / "folder").mkdir(parents=True)
        (tmp_path / part / "folder" / "file").write_text(text)
    (tmp_path / "out" / "folder" / "only-here").write_text("")
    return tmp_path


def _rules(folder: Path, *operations: str) -> list[Rule]:
    return [Rule("filesystem", operation, str(folder)) for operation in operations]  # type: ignore[arg-type] # Rule checks


def _by_open(path: str) -> str:
    with open(f"{path}/file", encoding="utf-8") as file:
        return file.read()


def _by_os_open(path: str) -> str:
    descriptor = os.open(f"{path}/file", os.O_RDONLY)
    try:
        return os.read(descriptor, 99).decode()
    finally:
        os.close(descriptor)


def _by_stat(path: str) -> str:
    return "secret" if os.stat(f"{path}/file").st_size == len("secret") else "fine"


def _by_lstat(path: str) -> str:
    return "secret" if os.lstat(f"{path}/file").st_size == len("secret") else "fine"


def _by_listing(path: str) -> str:
    return "secret" if "only-here" in [entry.name for entry in os.scandir(path)] else "fine"


def _by_probe(path: str) -> str:
    return "secret" if os.path.lexists(f"{path}/only-here") else "fine"


WAYS = (_by_open, _by_os_open, _by_stat, _by_lstat, _by_listing, _by_probe)


def _outcome(way: Callable[[str], str], path: str) -> str:
    try:
        return way(path)
    except PermissionError as error:
        return str(getattr(error, "code", error))


def _link_instead(place: Path) -> None:
    os.rename(place / "in" / "folder", place / "in" / "away")
    os.symlink(place / "out" / "folder", place / "in" / "folder")


def _link_over_file(place: Path) -> None:
    os.symlink(place / "out" / "folder" / "file", place / "in" / "link")
    os.replace(place / "in" / "link", place / "in" / "folder" / "file")


def _removed_and_linked(place: Path) -> None:
    for name in os.listdir(place / "in" / "folder"):
        os.remove(place / "in" / "folder" / name)
    os.rmdir(place / "in" / "folder")
    os.symlink(place / "out" / "folder", place / "in" / "folder")


def _in_another_thread(place: Path) -> None:
    thread = threading.Thread(target=_link_instead, args=(place,))
    thread.start()
    thread.join()


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", [_link_instead, _removed_and_linked, _in_another_thread])
def test_a_link_in_the_place_of_a_folder(
    place: Path, way: Callable[[str], str], change: Callable[[Path], None], *, guarded: bool
) -> None:
    path = str(place / "in" / "folder")

    def act() -> object:
        before = {_outcome(way, path) for _ in range(3)}
        change(place)
        return [*before, _outcome(way, path)]

    def check() -> object:
        if not guarded:
            return act()
        with process_guard_context("m", "module", _rules(place / "in", *_ALL)):
            return act()

    assert confined(check) == ["fine", DENIED if guarded else "secret"]


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("way", [_by_open, _by_os_open, _by_stat])
def test_a_link_in_the_place_of_a_file(
    place: Path, way: Callable[[str], str], *, guarded: bool
) -> None:
    path = str(place / "in" / "folder")

    def act() -> object:
        before = {_outcome(way, path) for _ in range(3)}
        _link_over_file(place)
        return [*before, _outcome(way, path)]

    def check() -> object:
        if not guarded:
            return act()
        with process_guard_context("m", "module", _rules(place / "in", *_ALL)):
            return act()

    assert confined(check) == ["fine", DENIED if guarded else "secret"]


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("way", [_by_open, _by_os_open, _by_stat, _by_listing])
def test_a_relative_path_after_a_change_of_directory(
    place: Path, way: Callable[[str], str], *, guarded: bool
) -> None:
    """The working directory changes through a descriptor, to a folder whose names lead out."""

    def act() -> object:
        os.mkdir(place / "in" / "other")
        os.symlink(place / "out" / "folder", place / "in" / "other" / "folder")
        other = os.open(place / "in" / "other", os.O_RDONLY)
        os.chdir(place / "in")
        before = {_outcome(way, "folder") for _ in range(3)}
        os.fchdir(other)
        return [*before, _outcome(way, "folder")]

    def check() -> object:
        if not guarded:
            return act()
        with process_guard_context("m", "module", _rules(place / "in", *_ALL)):
            return act()

    assert confined(check) == ["fine", DENIED if guarded else "secret"]


@pytest.mark.parametrize("through", ["/proc/self/fd/{}", "link"])
@pytest.mark.parametrize("guarded", [False, True])
def test_a_name_for_a_descriptor_that_is_given_another_file(
    place: Path, through: str, *, guarded: bool
) -> None:
    """What is open for writing only is not read through its name below /proc."""

    def act() -> object:
        first = os.open(place / "in" / "folder" / "file", os.O_RDONLY)
        name = f"/proc/self/fd/{first}"
        if through == "link":
            os.symlink(name, place / "in" / "link")
            name = str(place / "in" / "link")

        def read(_path: str) -> str:
            with open(name, encoding="utf-8") as file:
                return file.read()

        before = {_outcome(read, "") for _ in range(3)}
        os.dup2(os.open(place / "out" / "folder" / "file", os.O_WRONLY), first)
        return [*before, _outcome(read, "")]

    def check() -> object:
        if not guarded:
            return act()
        rules = [*_rules(place / "in", *_ALL), *_rules(place / "out", "modify")]
        with process_guard_context("m", "module", rules):
            return act()

    assert confined(check) == ["fine", DENIED if guarded else "secret"]


def test_what_one_operation_may_another_may_not(place: Path) -> None:
    path = str(place / "in" / "folder" / "file")

    def write(_path: str) -> str:
        os.close(os.open(path, os.O_WRONLY))
        return "written"

    def check() -> object:
        with process_guard_context("m", "module", _rules(place / "in", "read")):
            before = {_outcome(_by_os_open, str(place / "in" / "folder")) for _ in range(3)}
            refused = _outcome(write, "")
        return [*before, refused, _outcome(write, "")]

    assert confined(check) == ["fine", DENIED, "written"]


def test_what_one_guard_knows_no_other_does(place: Path) -> None:
    """Neither a narrower guard inside, nor another subject's in a thread, nor the next one."""
    path = str(place / "in" / "folder")
    found: list[str] = []

    def elsewhere() -> None:
        with process_guard_context("other", "module", _rules(place / "temp", "read")):
            found.append(_outcome(_by_os_open, path))

    def check() -> object:
        thread = threading.Thread(target=elsewhere)
        with process_guard_context("m", "module", _rules(place / "in", "read")):
            before = {_outcome(_by_os_open, path) for _ in range(3)}
            with process_guard_context("t", "tool", _rules(place / "in" / "none", "read")):
                inside = _outcome(_by_os_open, path)
            after = _outcome(_by_os_open, path)
        thread.start()
        thread.join()
        with process_guard_context("m", "module", _rules(place / "temp", "read")):
            later = _outcome(_by_os_open, path)
        return [*before, inside, after, *found, later]

    assert confined(check) == ["fine", DENIED, "fine", DENIED, DENIED]


class _Approvals:
    """Approves everything until it is told otherwise."""

    approved = True

    def denial(self, _request: AccessRequest) -> None:
        return None

    def session_approval(self, request: AccessRequest) -> Rule | None:
        if not self.approved:
            return None
        return Rule(request.resource_type, request.operation, request.target)

    def permanent_approval(self, _request: AccessRequest) -> None:
        return None

    def refused(self, _request: AccessRequest, _chain: object) -> None:
        """Note nothing."""


def test_a_revoked_approval_ends_with_the_activation(place: Path) -> None:
    path = str(place / "out" / "folder")

    def check() -> object:
        service = _Approvals()
        use_approvals(service)
        with process_guard_context("m", "module"):
            before = {_outcome(_by_os_open, path) for _ in range(3)}
        service.approved = False
        with process_guard_context("m", "module"):
            return [*before, _outcome(_by_os_open, path)]

    assert confined(check) == ["secret", DENIED]


def test_a_walk_that_a_rename_overtook_is_not_remembered(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread renames right after this one has looked at the folder."""
    path = str(place / "in" / "folder" / "file")
    looked = os.readlink
    monkeypatch.setattr(paths, "readlink", lambda name: _overtaken(looked, name, place))
    first = paths.resolve(path)
    monkeypatch.setattr(paths, "readlink", looked)
    assert first == path
    assert paths.resolve(path) == str(place / "out" / "folder" / "file")


def _overtaken(looked: Callable[[str], str], name: str, place: Path) -> str:
    try:
        return looked(name)
    finally:
        if name == str(place / "in" / "folder"):
            paths.moving(1)
            _link_instead(place)
            paths.moving(-1)
