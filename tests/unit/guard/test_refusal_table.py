"""Every refusal as it is promised: its type, its exact text, and its six fields."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest
from guard.confined import confined

from democrai_osguard.guard import install, process_guard_context, use_approvals
from democrai_osguard.guard.installation import use_asker

if TYPE_CHECKING:
    from collections.abc import Callable

_FIELDS = ("code", "subject", "operation", "target", "chain", "hint")
_CHAIN = ("module:outer", "task:inner")
_EMPTY = "an empty network target"
_TRUE = os.path.realpath("/bin/true")


class Row(NamedTuple):
    """An act, and what comes of it inside `task:inner`, run by `module:outer`."""

    act: Callable[[], object]
    kind: type[Exception]
    text: str
    code: str
    operation: str | None
    target: str
    hint: str


def _declare(resource: str, operation: str, target: str) -> str:
    line = f'{{"resource_type": "{resource}", "operation": "{operation}", "target": "{target}"}}'
    return (
        f"Declare {line} under 'access' in the manifest of task:inner,"
        " or ask an operator to approve it."
    )


def _connect(host: str, port: int) -> None:
    with socket.socket() as client:
        client.connect((host, port))


def _run() -> None:
    subprocess.run([_TRUE], check=True)


def _set() -> None:
    os.environ["DEMOCRAI_ACCESS"] = "[]"


def _broken(*_question: object) -> bool:
    raise OSError("the database is gone")


ROWS = {
    "a path outside the rules": Row(
        lambda: os.listdir("/srv"),
        PermissionError,
        "sandbox_filesystem_denied:inner:/srv"
        " (subject=task:inner; operation=read; chain=module:outer > task:inner)",
        "sandbox_filesystem_denied",
        "read",
        "/srv",
        _declare("filesystem", "read", "/srv"),
    ),
    "a program": Row(
        _run,
        PermissionError,
        f"sandbox_filesystem_execute_denied:inner:{_TRUE}",
        "sandbox_filesystem_execute_denied",
        "execute",
        _TRUE,
        _declare("filesystem", "execute", _TRUE),
    ),
    "a folder's descriptor": Row(
        lambda: os.stat("file", dir_fd=0),
        PermissionError,
        "sandbox_filesystem_fd_denied:inner:dir_fd",
        "sandbox_filesystem_fd_denied",
        None,
        "dir_fd",
        "Name the whole path instead of a folder's descriptor.",
    ),
    "a folder's descriptor in an opener": Row(
        lambda: open("file", opener=lambda name, how: os.open(name, how, dir_fd=0)),  # noqa: SIM115 - it is refused
        PermissionError,
        "sandbox_filesystem_fd_denied:inner:dir_fd",
        "sandbox_filesystem_fd_denied",
        None,
        "dir_fd",
        "Name the whole path instead of a folder's descriptor.",
    ),
    **{
        f"import {name}": Row(
            lambda name=name: __import__(name),  # type: ignore[misc]
            PermissionError,
            f"sandbox_module_denied:{name}",
            "sandbox_module_denied",
            None,
            name,
            "Native interop is a high trust: name the root in 'allowed_imports'.",
        )
        for name in ("ctypes", "_ctypes", "cffi", "_cffi_backend")
    },
    "a process": Row(
        _run,
        PermissionError,
        "sandbox_subprocess_denied:subprocess.run",
        "sandbox_subprocess_denied",
        "execute",
        "subprocess.run",
        "Start processes with sdk.tasks.run_subprocess.",
    ),
    "a variable of the runtime": Row(
        _set,
        PermissionError,
        "sandbox_env_denied:DEMOCRAI_ACCESS",
        "sandbox_env_denied",
        None,
        "DEMOCRAI_ACCESS",
        "DEMOCRAI_* variables belong to the runtime; choose another name.",
    ),
    "a network target": Row(
        lambda: _connect("127.0.0.1", 9),
        PermissionError,
        "sandbox_network_denied:inner:connect:localhost:9",
        "sandbox_network_denied",
        "connect",
        "localhost:9",
        _declare("network", "connect", "localhost:9"),
    ),
    _EMPTY: Row(
        lambda: _connect(" ", 0),
        ValueError,
        "network_target_missing",
        "network_target_missing",
        "connect",
        " ",
        "Name a host or a URL.",
    ),
    "a backend failure": Row(
        lambda: os.listdir("/srv"),
        RuntimeError,
        "sandbox_external_access_check_failed",
        "sandbox_external_access_check_failed",
        "read",
        "/srv",
        "Nobody could answer, so it stays closed: OSError: the database is gone."
        " Try again, or tell an operator.",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_refusal_is_exactly_as_promised(name: str) -> None:
    row = ROWS[name]

    def check() -> object:
        if name == "a backend failure":
            use_asker(_broken)
        else:
            use_approvals(None)
        with (
            process_guard_context("outer", "module"),
            process_guard_context("inner", "task", allow_subprocess=name == "a program"),
        ):
            try:
                row.act()
            except (PermissionError, ValueError, RuntimeError) as error:
                is_kind = isinstance(error, row.kind)
                only = isinstance(error, PermissionError) is (row.kind is PermissionError)
                fields = [getattr(error, field, "missing") for field in _FIELDS]
                return [is_kind and only, str(error), *fields]
        return "nothing was refused"

    fields = [row.code, "inner", row.operation, row.target, list(_CHAIN), row.hint]
    assert confined(check) == [True, row.text, *fields]


# The empty one is left out: without a guard it is a question to whoever resolves names here.
@pytest.mark.parametrize("name", sorted(ROWS.keys() - {_EMPTY}))
def test_nothing_of_it_is_refused_without_a_guard(name: str) -> None:
    def check() -> object:
        install()
        try:
            ROWS[name].act()
        except (OSError, ImportError) as error:  # nobody listens there; it is not installed
            return getattr(error, "code", None)
        return None

    assert confined(check) is None
