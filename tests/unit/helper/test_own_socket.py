"""The socket of a daemon that was started by hand."""

from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING

import pytest

from democrai_osguard_helper.own_socket import OwnSocket

if TYPE_CHECKING:
    from pathlib import Path


def _mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_it_is_there_for_its_group_and_goes_when_it_is_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "helper.sock")
    own = OwnSocket(path, None)
    with own.listen():
        assert _mode(path) == 0o660
    own.remove()
    assert not os.path.lexists(path)
    own.remove()


def test_what_an_ended_daemon_left_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "helper.sock")
    OwnSocket(path, None).listen().close()
    with OwnSocket(path, None).listen(), socket.socket(socket.AF_UNIX) as visitor:
        visitor.connect(path)


def test_a_socket_that_is_served_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "helper.sock")
    second = OwnSocket(path, None)
    with OwnSocket(path, None).listen() as first:
        with pytest.raises(OSError, match="somebody listens there"):
            second.listen()
        second.remove()
        with socket.socket(socket.AF_UNIX) as visitor:
            visitor.connect(path)
            first.accept()[0].close()


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_no_socket_is_left_alone(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "precious", tmp_path / "other"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        OwnSocket(str(other), None).listen().close()
        path.symlink_to(other)
    else:
        path.write_text("precious")
    own = OwnSocket(str(path), None)
    with pytest.raises(OSError, match="no socket"):
        own.listen()
    own.remove()
    assert path.exists()


def test_another_one_s_socket_is_not_removed(tmp_path: Path) -> None:
    path = str(tmp_path / "helper.sock")
    own = OwnSocket(path, None)
    own.listen().close()
    os.rename(path, f"{path}.old")
    with OwnSocket(path, None).listen():
        own.remove()
        assert os.path.exists(path)


def test_its_group_may_pass_the_folders_that_were_made_for_it(tmp_path: Path) -> None:
    path = tmp_path / "run" / "osguard" / "helper.sock"
    before = os.umask(0o077)
    try:
        OwnSocket(str(path), None).listen().close()
    finally:
        os.umask(before)
    assert [_mode(str(each)) for each in (path.parent, path.parent.parent)] == [0o755, 0o755]
