from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from democrai_osguard import TargetError, normalize_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unit.targets.path_tree import Tree

OTHER = os.getppid()  # a process that is there, and is not this one


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("/proc/self", "/proc/self"),
        ("/proc/self/", "/proc/self"),
        ("/proc/$ME", "/proc/self"),
        ("/proc/$ME/status", "/proc/self/status"),
        ("/proc/$ME/../$ME/status", "/proc/self/status"),
        ("/proc/./self/maps", "/proc/self/maps"),
        ("/proc/self/fd", "/proc/self/fd"),
        ("/proc/self/..", "/proc"),
        ("/proc/self/root", "/"),
        ("/proc/self/root/etc", "/etc"),
        ("/proc/$ME/root/etc/", "/etc"),
        ("/proc/self/root/proc/$ME/root/srv", "/srv"),
        ("/proc/self/task/$ME/root/srv", "/srv"),
        ("/proc/mounts", "/proc/self/mounts"),
        ("/proc/net/dev", "/proc/self/net/dev"),
        ("/proc/net/../status", "/proc/self/status"),
        ("/proc/net/../root/etc", "/etc"),
        ("/proc/$OTHER", "/proc/$OTHER"),
        ("/proc/$OTHER/status", "/proc/$OTHER/status"),
        ("/proc/\u00b2", "/proc/\u00b2"),
        ("/proc/\u0661/root", "/proc/\u0661/root"),
    ],
)
def test_this_process_has_one_name(text: str, normal: str) -> None:
    assert normalize_target("filesystem", _filled(text)) == _filled(normal)


@pytest.mark.parametrize(
    "text",
    [
        "/proc/$OTHER/root",
        "/proc/$OTHER/root/",
        "/proc/$OTHER/root/etc/passwd",
        "/proc/$OTHER/cwd",
        "/proc/$OTHER/cwd/x",
        "/proc/$OTHER/exe",
        "/proc/$OTHER/fd/0",
        "/proc/$OTHER/fd/0/x",
        "/proc/$OTHER/task/$OTHER/root/etc",
        "/proc/$OTHER/task/$OTHER/fd/0",
        "/proc/self/../$OTHER/root/etc",
        "/proc/self/root/proc/$OTHER/root/etc",
        "/proc/self/task/../../$OTHER/cwd",
        "//proc//$OTHER/./root/etc",
        "/proc/999999999/root/etc",
    ],
)
def test_a_path_through_another_process_is_unsafe(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        normalize_target("filesystem", _filled(text))
    assert caught.value.code == "unsafe_path"


@pytest.mark.parametrize("operation", ["create", "delete"])
def test_nothing_is_made_or_deleted_through_another_process(operation: str) -> None:
    with pytest.raises(TargetError) as caught:
        normalize_target("filesystem", f"/proc/{OTHER}/root/x", operation=operation)
    assert caught.value.code == "unsafe_path"


def test_a_link_to_another_process_is_unsafe(tmp_path: os.PathLike[str]) -> None:
    link = f"{os.fspath(tmp_path)}/link"
    os.symlink(f"/proc/{OTHER}/root", link)
    with pytest.raises(TargetError) as caught:
        normalize_target("filesystem", f"{link}/etc")
    assert caught.value.code == "unsafe_path"


def test_the_working_directory_and_program_are_where_they_really_are() -> None:
    assert normalize_target("filesystem", "/proc/self/cwd/x") == f"{os.getcwd()}/x"
    assert normalize_target("filesystem", "/proc/self/exe") == os.path.realpath(sys.executable)


@pytest.fixture
def descriptor(tree: Tree) -> Iterator[int]:
    """Return a descriptor of a file outside the tree's root."""
    number = os.open(f"{tree.outside}/secret", os.O_RDONLY)
    yield number
    os.close(number)


@pytest.mark.parametrize("front", ["/proc/self/fd", "/dev/fd", "/proc/$ME/fd"])
def test_a_descriptor_of_a_file_is_that_file(tree: Tree, descriptor: int, front: str) -> None:
    normal = normalize_target("filesystem", f"{_filled(front)}/{descriptor}")
    assert normal == f"{tree.outside}/secret"


def test_an_object_without_a_name_keeps_its_place() -> None:
    reader, writer = os.pipe()
    try:
        assert normalize_target("filesystem", f"/dev/fd/{reader}") == f"/proc/self/fd/{reader}"
    finally:
        os.close(reader)
        os.close(writer)


def test_another_thread_is_the_same_process() -> None:
    found: list[str] = []
    thread = threading.Thread(
        target=lambda: found.append(normalize_target("filesystem", f"/proc/{os.getpid()}/status"))
    )
    thread.start()
    thread.join()
    assert found == ["/proc/self/status"]


def _filled(text: str) -> str:
    return text.replace("$ME", str(os.getpid())).replace("$OTHER", str(OTHER))
