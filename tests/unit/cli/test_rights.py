"""`democrai-osguard explain` without an act says who may do what, and on whose word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from approvals.command import osguard

from democrai_osguard.access import Identity, Operation, ResourceType, Scope, SubjectType
from democrai_osguard.approvals import ApprovalService, Operator, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Other runs of the suite have processes on this machine, too.
NOTES, SLEEPER = f"notes-{os.getpid()}", f"sleeper-{os.getpid()}"
RULE = {"resource_type": "filesystem", "operation": "read", "target": "/srv/declared"}
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state folder with a decision of each scope."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    service = ApprovalService(open_store(f"sqlite://{folder}/approvals/approvals.sqlite3"))
    for number, scope in enumerate((Scope.SESSION, Scope.PERMANENT, Scope.DENIED)):
        session = "evening" if scope is Scope.SESSION else None
        what = ResourceType.FILESYSTEM, Operation.READ, f"/srv/{number}"
        decision = Identity(SubjectType.MODULE, NOTES, *what, scope, session)
        service.record(decision, Operator("ann", super_role=True))
    service.close()
    return folder


@pytest.fixture
def sleeper() -> Iterator[int]:
    """Return the number of a process that says with which rules it was started."""
    claim = {
        "DEMOCRAI_NETWORK_SUBJECT": SLEEPER,
        "DEMOCRAI_NETWORK_SUBJECT_KIND": "tool",
        "DEMOCRAI_ACCESS": json.dumps([RULE]),
    }
    made = subprocess.Popen(
        [sys.executable, "-c", SLEEP], stdout=subprocess.PIPE, text=True, env=os.environ | claim
    )
    assert made.stdout is not None
    assert made.stdout.readline() == "up\n"
    yield made.pid
    made.kill()
    made.communicate()


def _rights(state: Path, *words: str) -> list[dict[str, object]]:
    done = osguard(state, "explain", *words, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_what_was_decided_is_listed_with_who_decided_it(state: Path) -> None:
    found = _rights(state, "--subject", f"module:{NOTES}")
    assert [(each["code"], each["allowed"], each["target"]) for each in found] == [
        ("session_approval", True, "/srv/0"),
        ("permanent_approval", True, "/srv/1"),
        ("denied", False, "/srv/2"),
    ]
    assert all("by ann" in str(each["reason"]) for each in found)
    assert "evening" not in json.dumps(found)


def test_a_session_shows_its_own_approvals_and_no_other(state: Path) -> None:
    own, other = (
        _rights(state, "--subject", f"module:{NOTES}", "--session", key)
        for key in ("evening", "noon")
    )
    assert [each["target"] for each in own] == ["/srv/0", "/srv/1", "/srv/2"]
    assert [each["target"] for each in other] == ["/srv/1", "/srv/2"]


def test_a_task_is_shown_what_its_module_was_approved(state: Path) -> None:
    assert len(_rights(state, "--subject", f"task:{NOTES}")) == 3
    assert _rights(state, "--subject", "module:other") == []


def test_what_a_manifest_declares_is_listed_first(state: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"access": [RULE]}))
    manifest = ("--manifest", str(tmp_path / "manifest.json"))
    found = _rights(state, "--subject", f"module:{NOTES}", *manifest)
    assert RULE.items() <= found[0].items()
    assert (found[0]["code"], found[0]["known_from"]) == ("sandbox_allowed", "manifest")
    assert len(found) == 4


def test_what_runs_is_listed_by_its_own_word(state: Path, sleeper: int) -> None:
    (found,) = _rights(state, "--subject", f"tool:{SLEEPER}")
    assert RULE.items() <= found.items()
    assert found["reason"] == f"process {sleeper} was started with it, by its own word"


@pytest.mark.usefixtures("sleeper")
def test_words_name_the_subject_the_act_and_why(state: Path) -> None:
    text = osguard(state, "explain").stdout
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert any(line.startswith(f"module:{NOTES} may not filesystem read /srv/2") for line in lines)
    assert any(line.startswith(f"tool:{SLEEPER} may filesystem read /srv/decl") for line in lines)


def test_without_a_store_nothing_is_decided_and_none_is_made(tmp_path: Path) -> None:
    done = osguard(tmp_path / "none", "explain", "--subject", "module:nobody")
    assert (done.returncode, done.stdout[:35]) == (0, "nothing is declared or decided, and")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("network",), "an act is RESOURCE OPERATION TARGET"),
        (("network", "send"), "an act is RESOURCE OPERATION TARGET"),
        (("network", "send", "example.com"), "who acts?"),
    ],
)
def test_half_a_question_exits_with_64(state: Path, words: tuple[str, ...], says: str) -> None:
    done = osguard(state, "explain", *words)
    assert (done.returncode, done.stdout) == (64, "")
    assert says in done.stderr
