"""What a process may learn about itself in /proc, and not about others."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable

_LISTINGS: dict[str, Callable[[str], list[str]]] = {
    "listdir": lambda path: os.listdir(path),  # noqa: PLW0108 - by its name, which a guard replaces
    "listdir of bytes": lambda path: [os.fsdecode(name) for name in os.listdir(os.fsencode(path))],
    "scandir": lambda path: [entry.name for entry in os.scandir(path)],
}


def _own() -> tuple[str, ...]:
    """Return the names of this process's descriptors' folder."""
    thread = f"/proc/self/task/{threading.get_native_id()}/fd"
    return "/proc/self/fd", f"/proc/{os.getpid()}/fd", "/dev/fd", "/proc/thread-self/fd", thread


@pytest.mark.parametrize("how", _LISTINGS)
def test_a_guarded_process_sees_its_own_descriptors(how: str) -> None:
    def check() -> object:
        held = os.open("/dev/null", os.O_RDONLY)
        with process_guard_context("m", "module"):
            return [str(held) in _LISTINGS[how](path) for path in _own()]

    assert confined(check) == [True] * len(_own())


def test_it_sees_its_own_folder_and_where_a_descriptor_leads() -> None:
    def check() -> object:
        held = os.open("/dev/null", os.O_RDONLY)
        with process_guard_context("m", "module"):
            return "fd" in os.listdir("/proc/self"), os.readlink(f"/proc/self/fd/{held}")

    assert confined(check) == [True, "/dev/null"]


@pytest.mark.parametrize("below", ["fd", "task/{0}/fd", "root", "cwd"])
def test_another_process_stays_closed_also_a_child(below: str) -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
        path = f"/proc/{child.pid}/{below.format(child.pid)}"
        assert os.listdir(path), "the control: without a guard it is seen"

        def check() -> object:
            codes = []
            with process_guard_context("m", "module"):
                for listing in _LISTINGS.values():
                    with pytest.raises(PermissionError) as refused:
                        listing(path)
                    codes.append(refused.value.code)  # type: ignore[attr-defined] # a refusal has one
            return codes

        assert set(confined(check)) == {"sandbox_filesystem_denied"}


@pytest.mark.parametrize("name", ["fd", "cwd", "root"])
def test_what_a_descriptor_or_a_folder_of_its_own_leads_to_is_judged(name: str) -> None:
    def check() -> object:
        held = os.open("/etc", os.O_RDONLY)
        os.chdir("/etc")
        path = f"/proc/self/fd/{held}" if name == "fd" else f"/proc/self/{name}"
        with process_guard_context("m", "module"), pytest.raises(PermissionError) as refused:
            os.listdir(path)
        return refused.value.code  # type: ignore[attr-defined] # a refusal has one

    assert confined(check) == "sandbox_filesystem_denied"
