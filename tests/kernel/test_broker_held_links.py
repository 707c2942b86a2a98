"""A link that leads elsewhere when the answer comes is not what was approved."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.people import (
    DEADLINE,
    LAUNCHER,
    OPERATOR,
    asked,
)

if TYPE_CHECKING:
    from pathlib import Path

    from democrai_osguard.approvals.service import ApprovalService

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

SWAP = """
import os, sys, threading
os.symlink("file", "name")
def swap():
    sys.stdin.readline()
    os.rename("other", "name")
    print("swapped", flush=True)
thread = threading.Thread(target=swap); thread.start()
try:
    print(open("name").read(), end="")
except OSError as error:
    print(type(error).__name__)
thread.join()
"""


def test_what_is_swapped_while_it_waits_is_not_what_was_approved(
    service: ApprovalService, work: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (work / "other").symlink_to(tmp_path / "secret")
    options = ["--create", str(work), "--delete", str(work)]
    words = [*LAUNCHER, "--supervised", "--subject", "module:notes", *options, "--"]
    process = subprocess.Popen(
        [*words, sys.executable, "-I", "-c", SWAP], cwd=work, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    request = asked(service)
    assert request.rule.target == str(work / "file")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "swapped\n"
    service.approve_once(request.id, OPERATOR)
    output, _ = process.communicate(timeout=DEADLINE)
    assert output == "PermissionError\n"
