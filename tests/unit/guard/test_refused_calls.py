"""What a refused call says: which parameter, which operation, and that before anything else."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from guard.confined import confined

from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Act = Callable[[str], object]

EARLY: dict[str, Any] = {
    "link": os.link,
    "rename": os.rename,
    "chmod": os.chmod,
}  # from before any guard


def _refusal(act: Act, argument: str, **options: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the text of the refusal that an act ends with under a guard, and its operation."""

    def check() -> object:
        with process_guard_context("m", "module", **options):
            try:
                act(argument)
            except PermissionError as error:
                return [str(error), getattr(error, "operation", "not a refusal")]
        return "nothing was refused"

    return confined(check)


DESCRIPTORS: dict[str, tuple[Act, str]] = {
    "rename from": (lambda path: os.rename("a", path, src_dir_fd=0), "src_dir_fd"),
    "rename to": (lambda path: os.rename(path, "a", dst_dir_fd=0), "dst_dir_fd"),
    "replace from": (lambda path: os.replace("a", path, src_dir_fd=0), "src_dir_fd"),
    "replace to": (lambda path: os.replace(path, "a", dst_dir_fd=0), "dst_dir_fd"),
    "link from": (lambda path: os.link("a", path, src_dir_fd=0), "src_dir_fd"),
    "link to": (lambda path: os.link(path, "a", dst_dir_fd=0), "dst_dir_fd"),
    "symlink": (lambda path: os.symlink(path, "a", dir_fd=0), "dir_fd"),
    "mkdir": (lambda path: os.mkdir(path, dir_fd=0), "dir_fd"),
    "open": (lambda path: os.open(path, os.O_RDONLY, dir_fd=0), "dir_fd"),
}


@pytest.mark.parametrize("way", DESCRIPTORS)
def test_the_parameter_that_names_a_descriptor_is_told_before_any_other_refusal(
    tmp_path: Path, way: str
) -> None:
    act, parameter = DESCRIPTORS[way]
    found = _refusal(act, str(tmp_path / "closed"), include_runtime_paths=False)
    assert found == [f"sandbox_filesystem_fd_denied:m:{parameter}", None]


def _opening(mode: str) -> Act:
    def act(path: str) -> None:
        with open(path, mode, encoding="utf-8"):
            pass

    return act


def _named(module: object, name: str) -> Act:
    """Return a function that is looked up when it is called, as guarded code finds it."""

    def act(path: str) -> object:
        return getattr(module, name)(path)

    return act


def _listen(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{path}/socket")


UNSAFE: dict[str, tuple[Act, str]] = {
    "open to read": (_opening("r"), "read"),
    "open to write": (_opening("w"), "create"),
    "open to change": (_opening("r+"), "modify"),
    "os.open to read": (lambda path: os.open(path, os.O_RDONLY), "read"),
    "os.open to write": (lambda path: os.open(path, os.O_WRONLY), "modify"),
    "os.open to create": (lambda path: os.open(path, os.O_WRONLY | os.O_CREAT), "create"),
    "stat": (_named(os, "stat"), "read"),
    "exists": (_named(os.path, "exists"), "read"),
    "access": (lambda path: os.access(path, os.R_OK), "read"),
    "listdir": (_named(os, "listdir"), "read"),
    "scandir": (_named(os, "scandir"), "read"),
    "chmod": (lambda path: os.chmod(path, 0o600), "modify"),
    "early chmod": (lambda path: EARLY["chmod"](path, 0o600), "modify"),
    "mkdir": (lambda path: os.mkdir(f"{path}/folder"), "create"),
    "remove": (lambda path: os.remove(f"{path}/file"), "delete"),
    "rename": (lambda path: os.rename(f"{path}/file", path), "delete"),
    "rename to": (lambda path: os.rename(os.path.dirname(__file__), f"{path}/a"), "create"),
    "bind": (_listen, "create"),
    "early rename": (lambda path: EARLY["rename"](f"{path}/file", path), "delete"),
}


@pytest.mark.parametrize("kind", ["climbs", "loop"])
@pytest.mark.parametrize("way", UNSAFE)
def test_the_refusal_of_a_path_that_leads_nowhere_safe_names_the_operation(
    tmp_path: Path, way: str, kind: str
) -> None:
    os.symlink("loop", tmp_path / "loop")
    path = str(tmp_path / "loop") if kind == "loop" else f"{tmp_path}/no/../file"
    act, operation = UNSAFE[way]
    text, told = _refusal(act, path, allowed_paths=["/"])
    assert told == operation
    assert text.startswith(f"sandbox_filesystem_denied:m:{path}")
    assert f"operation={operation};" in text
