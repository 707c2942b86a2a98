"""What was learnt from a run, and the run again under that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from host_features import lack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Again = Callable[..., subprocess.CompletedProcess[str]]

OSGUARD = (sys.executable, "-I", "-m", "democrai_osguard.cli.main")
IDENTITY = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
}  # fmt: skip


class Learned(NamedTuple):
    manifest: Path
    entries: list[dict[str, object]]
    said: str

    @property
    def rules(self) -> set[tuple[object, object]]:
        return {(entry["operation"], entry["target"]) for entry in self.entries}

    def marks(self, target: Path | str) -> list[object]:
        return [each for entry in self.entries if entry["target"] == str(target)
                for each in entry["marks"]]  # type: ignore[attr-defined]  # fmt: skip


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        lack(name)
    return found


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, **IDENTITY, "HOME": str(home), "TMPDIR": str(home / "tmp")}


def learn(home: Path, *command: str | Path, cwd: Path) -> Learned:
    manifest = home / "learned.json"
    words = ["learn", "--json", "--manifest-out", str(manifest), "--", *map(str, command)]
    done = subprocess.run(
        [sys.executable, "-I", "-m", "democrai_osguard.cli.main", *words],
        cwd=cwd, env=environment(home), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = done.stdout[done.stdout.index('{\n  "access"') :]
    return Learned(manifest, json.loads(printed)["entries"], done.stderr)


def osguard_learn(
    home: Path, *command: str | Path, options: tuple[str | Path, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Learn from a command in its home; return what was said."""
    words = [*OSGUARD, *map(str, ("learn", *options, "--", *command))]
    return subprocess.run(
        words, cwd=home, env=environment(home), capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip


def fresh(home: Path, name: str, fill: Callable[[Path], object]) -> Path:
    """Make the folder as it was before the first run."""
    folder = home / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    fill(folder)
    return folder
