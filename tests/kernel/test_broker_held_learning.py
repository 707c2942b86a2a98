"""Learning by asking: what was approved is the manifest, and is enough to run again."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.people import (
    DEADLINE,
    OPERATOR,
    python,
    somebody,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Launch

    from democrai_osguard.approvals.service import ApprovalService

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")


def test_learning_can_begin_with_nothing(service: ApprovalService, work: Path) -> None:
    command = [sys.executable, "-I", "-m", "democrai_osguard.cli.main", "learn", "--deny-first"]
    (work / "other").write_text("other")

    def decide(each: str) -> object:
        wanted = service.get(each).rule.target.endswith("file")
        return service.approve_once(each, OPERATOR) if wanted else service.deny(each, OPERATOR)

    with somebody(service, decide):
        done = subprocess.run(
            [*command, "--", "cat", "file", "other"], cwd=work, capture_output=True, text=True,
            timeout=DEADLINE, check=False,
        )  # fmt: skip
    assert done.stdout.startswith("content\n")
    rule = {"resource_type": "filesystem", "operation": "read", "target": str(work / "file")}
    assert json.loads(done.stdout.removeprefix("content\n")) == {"access": [rule]}


def test_what_was_learnt_by_asking_is_enough(
    service: ApprovalService, work: Path, tmp_path: Path, launch: Launch
) -> None:
    manifest = tmp_path / "learned.json"
    words = ["learn", "--deny-first", "--manifest-out", str(manifest), "--"]
    command = ("sh", "-c", "exec < file; read -r word; echo $word > new")
    with somebody(service, lambda each: service.approve_once(each, OPERATOR)):
        subprocess.run(
            [sys.executable, "-I", "-m", "democrai_osguard.cli.main", *words, *command],
            cwd=work, capture_output=True, text=True, timeout=DEADLINE, check=True,
        )  # fmt: skip
    (work / "new").unlink()
    assert launch("--manifest", manifest, "--", *command, cwd=work).returncode == 0
    assert (work / "new").read_text() == "content\n"


def test_a_move_that_was_approved_is_learnt_as_its_folder(
    service: ApprovalService, work: Path, tmp_path: Path, launch: Launch
) -> None:
    manifest = tmp_path / "learned.json"
    words = ["learn", "--deny-first", "--manifest-out", str(manifest), "--"]
    command = python("(at / 'file').rename(at / 'new')")
    with somebody(service, lambda each: service.approve_once(each, OPERATOR)):
        subprocess.run(
            [sys.executable, "-I", "-m", "democrai_osguard.cli.main", *words, *command],
            cwd=work, capture_output=True, text=True, timeout=DEADLINE, check=True,
        )  # fmt: skip
    (work / "new").rename(work / "file")
    assert launch("--manifest", manifest, "--", *command, cwd=work).stdout == "ready\ndone\n"
