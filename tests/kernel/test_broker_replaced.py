"""A rule is about what was there at the start; whatever takes its place has no right from it."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import plan_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Confined, Free

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

CHANGES: dict[str, Callable[[Path], object]] = {
    "chmod": lambda path: os.chmod(path, 0o666),
    "utime": lambda path: os.utime(path, (1, 1)),
    "setxattr": lambda path: os.setxattr(path, "user.x", b"y"),
    "open and fchmod": lambda path: os.fchmod(os.open(path, os.O_RDONLY), 0o666),
}


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """Make a folder to create and delete in, with a file and a folder; and one to read."""
    for name in ("in/folder/own", "in/other/own", "in/file", "out/secret"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        path.chmod(0o600)
    return tmp_path / "in"


def rules(inside: Path, *changed: str) -> list[tuple[str, str | Path]]:
    names = [("read", inside.parent), ("create", inside), ("delete", inside)]
    return [*names, *(("modify", inside / name) for name in changed)]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["file", "missing"])
def test_a_link_in_the_place_of_a_name_changes_nothing(
    change: str, name: str, inside: Path, confined: Confined, free: Free
) -> None:
    secret = inside.parent / "out/secret"
    before = secret.stat()

    def act() -> None:
        if name == "file":
            CHANGES[change](inside / name)
            os.unlink(inside / name)
        os.link(secret, inside / name)
        CHANGES[change](inside / name)

    assert confined(act, *rules(inside, name)) == "EPERM"
    assert os.path.samefile(secret, inside / name)
    after = secret.stat()
    assert (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)
    assert os.listxattr(secret) == []
    assert free(lambda: CHANGES[change](inside / name)) == "allowed"


def test_a_folder_in_the_place_of_another_has_none_of_its_rights(
    inside: Path, confined: Confined
) -> None:
    def own() -> None:
        os.chmod(inside / "folder/own", 0o640)
        os.chmod(inside / "folder", 0o755)

    def act() -> None:
        os.rename(inside / "folder", inside / "before")
        os.rename(inside / "other", inside / "folder")
        os.chmod(inside / "folder/own", 0o666)

    assert confined(own, *rules(inside, "folder")) == "allowed"
    assert (inside / "folder/own").stat().st_mode & 0o777 == 0o640
    assert confined(act, *rules(inside, "folder")) == "EPERM"
    assert (inside / "folder/own").stat().st_mode & 0o777 == 0o600


def test_what_is_made_beneath_a_folder_is_its_own(inside: Path, confined: Confined) -> None:
    def act() -> None:
        made = os.open(inside / "folder/new", os.O_CREAT | os.O_WRONLY, 0o600)
        os.fchmod(made, 0o640)
        os.rename(inside / "folder/new", inside / "folder/newer")
        os.chmod(inside / "folder/newer", 0o644)
        os.unlink(inside / "folder/newer")
        os.fchmod(made, 0o600)  # without a name it is nobody else's either

    assert confined(act, *rules(inside, "folder")) == "allowed"


def test_a_file_that_was_made_anew_is_another(inside: Path, confined: Confined) -> None:
    def act() -> None:
        os.unlink(inside / "file")
        os.close(os.open(inside / "file", os.O_CREAT | os.O_WRONLY, 0o600))
        os.chmod(inside / "file", 0o644)

    assert confined(act, *rules(inside, "file")) == "EPERM"


def test_a_socket_in_the_place_of_another_is_not_reached(
    inside: Path, confined: Confined, free: Free
) -> None:
    with socket.socket(socket.AF_UNIX) as own, socket.socket(socket.AF_UNIX) as other:
        for listener, name in ((own, "in/socket"), (other, "out/socket")):
            listener.bind(str(inside.parent / name))
            listener.listen()

        def connect() -> None:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(inside / "socket"))

        def act() -> None:
            os.unlink(inside / "socket")
            os.link(inside.parent / "out/socket", inside / "socket")
            connect()

        granted = rules(inside, "socket")
        assert plan_for(granted).brokered
        assert confined(connect, *granted) == "allowed"
        assert confined(act, *granted) == "EACCES"
        assert free(connect) == "allowed"
