"""A module that is not fully trusted. It is loaded and run under its guard."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

from democrai_osguard import sdk

if TYPE_CHECKING:
    from collections.abc import Mapping


def read(path: str) -> str:
    """Return a file's text; PermissionError where the module may not read it."""
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def import_file(path: str) -> sdk.access.ExternalAccess:
    """Ask for a file of the user's choice, to go on once somebody has allowed it."""
    return sdk.access.require_external_access(
        resource_type=sdk.access.EXTERNAL_RESOURCE_FILESYSTEM,
        operation="read",
        target=path,
        resume_action="notes.resume_import",
        resume_context={"path": path},
    )


def resume_import(context: Mapping[str, object]) -> str:
    """Go on where `import_file` had to stop."""
    return read(str(context["path"]))


def fetch(url: str) -> str:
    """Return what a server answers: the module's tool."""
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - the guard judges it
        return str(answer.read().decode())


def show(path: str) -> tuple[int, str]:
    """Print a file in a child process; return its exit code and what it wrote."""
    done = sdk.tasks.run_subprocess_sync("cat", path, timeout=60, max_output=10_000)
    return done.returncode, (done.stdout or done.stderr).decode().strip()


def ask_to_send(url: str) -> sdk.access.ExternalAccess:
    """Ask whether something may be sent, as scheduled work does."""
    return sdk.access.check_external_access(
        resource_type=sdk.access.EXTERNAL_RESOURCE_NETWORK, operation="send", target=url
    )
