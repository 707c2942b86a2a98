"""Runs the project's own programs as a user does, in a process of their own."""

from __future__ import annotations

import subprocess
import sys


def osguard(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `democrai-osguard` with these arguments."""
    command = [sys.executable, "-I", "-m", "democrai_osguard.cli.main", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment or None, timeout=60
    )
