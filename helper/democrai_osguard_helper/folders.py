"""Folders on the way to the daemon's socket and state: everybody may pass, whatever the umask."""

from __future__ import annotations

import contextlib
import os


def make_parents(path: str) -> None:
    """Make the folders above a path that are missing; those that are there stay as they are."""
    folder = os.path.dirname(path)
    if os.path.isdir(folder):
        return
    make_parents(folder)
    with contextlib.suppress(FileExistsError):  # another daemon is starting as well
        os.mkdir(folder)
        os.chmod(folder, 0o755)  # noqa: S103 - what is private in it says so itself
