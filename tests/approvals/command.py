"""The commands of approvals as a user runs them, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = (sys.executable, "-I", "-m", "democrai_osguard.cli.main")


def osguard(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `democrai-osguard` with this state folder."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DEMOCRAI_STATE_DIR": str(state)},
        timeout=60,
    )
