"""Where the operator names a state folder, its store answers, without a word of the application."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

ASK = """
import sys
from democrai_osguard import process_guard_context, runtime, sdk
{before}
with process_guard_context("notes", "module", session_key="s"):
    try:
        answer = sdk.access.require_external_access(
            resource_type="filesystem", operation="read", target=sys.argv[1])
        print(answer.code, answer.request_id or "")
        print(open(sys.argv[1]).read())
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("content")
    return tmp_path / "state"


def run(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if "DEMOCRAI" not in name}
    # Every guard may read the folder of temporary files, and this one shall not be it.
    named = {"DEMOCRAI_STATE_DIR": str(state), "TMPDIR": str(state.parent / "temp")}
    return subprocess.run(
        [sys.executable, *words], env={**kept, **named},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def ask(state: Path, before: str = "") -> list[str]:
    done = run(state, "-c", ASK.format(before=before), str(state.parent / "secret"))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def osguard(state: Path, *words: str) -> str:
    done = run(state, "-m", "democrai_osguard.cli.main", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_asked_and_decided_on_the_command_line_counts(state: Path) -> None:
    code, refused = ask(state)
    assert code.startswith("not_enabled ")
    assert refused.startswith("FilesystemDenied")
    (asked,) = json.loads(osguard(state, "requests", "list", "--json"))
    osguard(state, "requests", "approve", asked["id"], "--scope", "permanent")
    assert ask(state) == ["permanent_approval ", "content"]
    osguard(state, "requests", "deny", asked["id"], "--overrule")
    code, refused = ask(state)
    assert code == "denied "
    assert refused.startswith("FilesystemDenied")


def test_an_application_that_wants_the_rules_alone_has_them(state: Path) -> None:
    code, read = ask(state, "runtime.use_approvals(None)")
    assert code == "not_enabled "  # and no request
    assert read.startswith("FilesystemDenied sandbox_filesystem_denied")
    assert not state.exists()


def test_a_store_that_cannot_be_opened_closes_and_is_no_denial(state: Path) -> None:
    state.write_text("no folder")
    done = run(state, "-c", ASK.format(before=""), str(state.parent / "secret"))
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert "ApprovalCheckFailed: sandbox_external_access_check_failed: " in last
    assert done.stdout == ""


def test_the_newest_decision_stands(state: Path) -> None:
    script = f"""
from democrai_osguard import process_guard_context, sdk
from democrai_osguard.approvals import Operator
ann, path = Operator("ann", super_role=True), {str(state.parent / "secret")!r}
def ask():
    with process_guard_context("notes", "module", session_key="s"):
        return sdk.access.check_external_access(
            resource_type="filesystem", operation="read", target=path)
asked = ask()
for decide in ("approve_permanently", "deny_external_access", "approve_for_session",
               "deny_external_access", "approve_permanently"):
    getattr(sdk.access, decide)(asked.request_id, ann)
    print(ask().code)
print(sdk.access.deny_external_access(asked.request_id, ann, overrule=False).applied)
"""
    said = run(state, "-c", script)
    assert said.stdout.split() == [
        "permanent_approval", "denied", "session_approval", "denied", "permanent_approval", "False",
    ], said.stderr  # fmt: skip
