"""However much is refused, no decision is pushed out of the log, and none goes unnoticed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from approvals.command import osguard

from democrai_osguard.audit import AuditLog, verify
from democrai_osguard.audit.keeping import KEPT, keep
from democrai_osguard.audit.log import rotated

if TYPE_CHECKING:
    from pathlib import Path

DECISIONS = 8
ELSE = ("bypass", "answer", "unconfirmed", "resume")


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    """Return a log that was flooded: its first files are gone, all records of them refusals."""
    made = small(tmp_path)
    for number in range(DECISIONS):
        made.record("decision", {"target": f"/srv/{number}"}, durable=False)
    for event in ELSE:
        made.record(event, {}, durable=False)
    flood(made)
    return made


def small(tmp_path: Path) -> AuditLog:
    return AuditLog(f"{tmp_path}/state/audit", rotate_bytes=4096, keep_files=2)


def flood(log: AuditLog, count: int = 100) -> None:
    for number in range(count):
        log.record("refusal", {"target": f"/{number}" + "x" * 200}, durable=False)


def kept(log: AuditLog) -> list[dict[str, object]]:
    with open(f"{log.folder}/{KEPT}", encoding="ascii") as file:
        return [json.loads(line)["record"] for line in file]


def put(log: AuditLog, lines: list[str]) -> None:
    with open(f"{log.folder}/{KEPT}", "w", encoding="ascii") as file:
        file.writelines(lines)


def lines(log: AuditLog) -> list[str]:
    with open(f"{log.folder}/{KEPT}", encoding="ascii") as file:
        return file.readlines()


def found(log: AuditLog) -> list[tuple[str, str]]:
    return [(flaw.kind, flaw.words) for flaw in verify(log.folder).flaws]


def test_a_flood_of_refusals_pushes_no_decision_out(log: AuditLog) -> None:
    stored = kept(log)
    targets = [record["target"] for record in stored if record["event"] == "decision"]
    assert targets == [f"/srv/{number}" for number in range(DECISIONS)]
    assert {record["event"] for record in stored} >= set(ELSE)
    report = verify(log.folder)
    assert (report.flaws, report.kept) == ([], len(stored))
    assert len(rotated(log.folder)) == 2  # the control: their files are gone
    assert (report.first or 0) > DECISIONS


def test_the_log_says_how_many_refusals_went(log: AuditLog) -> None:
    before = verify(log.folder)
    gone = 0
    for name in (*rotated(log.folder), "audit.jsonl"):
        with open(f"{log.folder}/{name}", encoding="ascii") as file:
            notes = [json.loads(line) for line in file]
        gone += sum(each["gone"]["refusal"] for each in notes if each["event"] == "pruned")
    gone += sum(
        each["gone"]["refusal"]  # type: ignore[index]
        for each in kept(log)
        if each["event"] == "pruned"
    )
    refusals = 0
    for name in (*rotated(log.folder), "audit.jsonl"):
        with open(f"{log.folder}/{name}", encoding="ascii") as file:
            refusals += sum(json.loads(line)["event"] == "refusal" for line in file)
    assert gone + refusals == 100
    assert before.sound


def test_what_is_kept_is_kept_once_and_goes_on(log: AuditLog) -> None:
    log.record("decision", {"target": "/srv/later"})
    flood(log)
    stored = [record for record in kept(log) if record["event"] == "decision"]
    assert len(stored) == DECISIONS + 1
    assert verify(log.folder).flaws == []


def test_a_process_that_died_while_keeping_is_made_up_for(tmp_path: Path) -> None:
    log = small(tmp_path)
    for number in range(40):
        log.record("decision", {"target": f"/srv/{number}" + "x" * 200}, durable=False)
        if number == 20:
            # Kept, and then neither noted nor removed: as far as a dying process may get.
            keep(log.folder, rotated(log.folder), 0.0)
            with open(f"{log.folder}/{KEPT}", "a", encoding="ascii") as file:
                file.write('{"number": 7, "at"')
            os.chmod(f"{log.folder}/{KEPT}", 0o600)
    flood(log)
    numbers = [record["number"] for record in kept(log) if record["event"] == "decision"]
    assert len(numbers) == len(set(numbers)) == 40
    assert verify(log.folder).flaws == []


@pytest.mark.parametrize("gone", range(DECISIONS))
def test_a_kept_record_that_is_missing_is_named(log: AuditLog, gone: int) -> None:
    text = lines(log)
    put(log, text[:gone] + text[gone + 1 :])
    assert found(log) == [("missing", f"kept record {gone + 1} is missing")]


def test_a_kept_record_that_was_changed_is_named(log: AuditLog) -> None:
    text = lines(log)
    text[2] = text[2].replace("/srv/2", "/srv/9")
    put(log, text)
    assert found(log)[0] == ("changed", "kept record 3 was changed after it was written")
    assert verify(log.folder).flaws[0].where == f"{KEPT} line 3"


def test_a_lost_end_and_a_lost_file_are_named(log: AuditLog) -> None:
    text = lines(log)
    put(log, text[:-1])
    assert found(log) == [("missing", f"kept record {len(text)} is missing")]
    os.unlink(f"{log.folder}/{KEPT}")
    assert found(log) == [("missing", f"kept records 1 to {len(text)} missing")]


def test_kept_records_of_another_log_are_named(log: AuditLog, tmp_path: Path) -> None:
    other = AuditLog(f"{tmp_path}/other", rotate_bytes=4096, keep_files=2)
    for number in range(DECISIONS):
        other.record("decision", {"target": f"/elsewhere/{number}"}, durable=False)
    for event in ELSE:
        other.record(event, {}, durable=False)
    flood(other)
    put(log, lines(other))
    assert {kind for kind, _ in found(log)} == {"changed"}


def test_the_command_spans_all_files(log: AuditLog, tmp_path: Path) -> None:
    state = tmp_path / "state"
    done = osguard(state, "audit", "verify")
    assert done.returncode == 0, done.stdout
    assert f"{len(kept(log))} kept of earlier files" in done.stdout
    report = json.loads(osguard(state, "audit", "verify", "--json").stdout)
    assert (report["sound"], report["kept"]) == (True, len(kept(log)))
    first = rotated(log.folder)[0]
    with open(f"{log.folder}/{first}", encoding="ascii") as file:
        changed = file.read().replace("xxx", "xyx", 1)
    with open(f"{log.folder}/{first}", "w", encoding="ascii") as file:
        file.write(changed)
    done = osguard(state, "audit", "verify")
    assert done.returncode == 1
    assert f"was changed after it was written ({first} line" in done.stdout


def test_a_log_that_cannot_be_rotated_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = small(tmp_path)
    log.record("decision")
    os.mkdir(f"{log.folder}/audit-{1:020d}.jsonl")  # in the way of the first full file
    for number in range(30):
        log.record("decision", {"target": f"/srv/{number}" + "x" * 200}, durable=False)
    assert "could not be rotated" in caplog.text
    os.rmdir(f"{log.folder}/audit-{1:020d}.jsonl")
    log.record("decision")
    assert len(rotated(log.folder)) == 1
    assert verify(log.folder).records == 32
    assert verify(log.folder).sound
