"""The audit log names what was changed, lost or moved in it."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from approvals.cases import ADA, MODULE, read

from democrai_osguard.approvals import (
    ApprovalCheckFailed,
    ApprovalService,
    HistoryEntry,
    open_store,
)
from democrai_osguard.approvals.sql_store import SqlStore
from democrai_osguard.approvals.sqlite import SqliteDatabase
from democrai_osguard.audit import AuditLog, verify
from democrai_osguard.audit.log import AuditFailed
from democrai_osguard.audit.private_files import UnsafeFile

if TYPE_CHECKING:
    from pathlib import Path

    from democrai_osguard.approvals.store import Witness


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    """Return a log of six records."""
    made = AuditLog(f"{tmp_path}/audit")
    for number in range(6):
        made.record("decision", {"target": f"/srv/{number}"})
    return made


def lines(log: AuditLog) -> list[str]:
    with open(f"{log.folder}/audit.jsonl", encoding="ascii") as file:
        return file.readlines()


def put(log: AuditLog, changed: list[str]) -> None:
    with open(f"{log.folder}/audit.jsonl", "w", encoding="ascii") as file:
        file.writelines(changed)


def found(log: AuditLog) -> list[tuple[str, str]]:
    return [(flaw.kind, flaw.words) for flaw in verify(log.folder).flaws]


def test_an_untouched_log_is_sound(log: AuditLog) -> None:
    report = verify(log.folder)
    assert (report.sound, report.records, report.first, report.last) == (True, 6, 1, 6)


def test_an_empty_log_is_sound(tmp_path: Path) -> None:
    assert verify(f"{tmp_path}/none").sound


def test_the_files_are_private(log: AuditLog) -> None:
    for name in os.listdir(log.folder):
        assert stat.S_IMODE(os.stat(f"{log.folder}/{name}").st_mode) == 0o600


def test_a_changed_record_is_named(log: AuditLog) -> None:
    text = lines(log)
    text[2] = text[2].replace("/srv/2", "/srv/9")
    put(log, text)
    assert found(log)[0][0] == "changed"
    assert "record 3 was changed" in found(log)[0][1]


@pytest.mark.parametrize("gone", range(6))
def test_a_missing_record_is_named(log: AuditLog, gone: int) -> None:
    text = lines(log)
    del text[gone]
    put(log, text)
    assert found(log) == [("missing", f"record {gone + 1} is missing")]


def test_several_missing_records_are_named(log: AuditLog) -> None:
    text = lines(log)
    put(log, text[:1] + text[3:])
    assert found(log) == [
        ("missing", "record 2 is missing"),
        ("missing", "record 3 is missing"),
    ]


@pytest.mark.parametrize("place", range(5))
def test_a_reordered_record_is_named(log: AuditLog, place: int) -> None:
    text = lines(log)
    text[place], text[place + 1] = text[place + 1], text[place]
    put(log, text)
    kinds = {kind for kind, _ in found(log)}
    assert "reordered" in kinds
    assert any(f"record {place + 1} stands after" in words for _, words in found(log))


def test_a_record_that_stands_twice_is_named(log: AuditLog) -> None:
    text = lines(log)
    put(log, [*text[:3], text[1], *text[3:]])
    assert found(log) == [("reordered", "record 2 stands after record 3")]


def test_a_record_forged_with_a_fresh_hash_breaks_the_chain(log: AuditLog, tmp_path: Path) -> None:
    other = AuditLog(f"{tmp_path}/other")
    for number in range(6):
        other.record("decision", {"target": f"/elsewhere/{number}"})
    text = lines(log)
    text[3] = lines(other)[3]
    put(log, text)
    kinds = [kind for kind, _ in found(log)]
    assert kinds == ["changed", "changed"]
    assert "record 4" in found(log)[0][1]


def test_an_unreadable_line_is_named(log: AuditLog) -> None:
    text = lines(log)
    text[1] = "\x00garbage\n"
    put(log, text)
    assert [kind for kind, _ in found(log)] == ["unreadable"]


def test_a_lost_file_is_noticed(log: AuditLog) -> None:
    os.unlink(f"{log.folder}/audit.jsonl")
    assert found(log) == [("missing", "records 1 to 6 missing")]


def test_a_lost_head_is_noticed(log: AuditLog) -> None:
    os.unlink(f"{log.folder}/audit.head")
    assert [kind for kind, _ in found(log)] == ["missing"]


def test_what_a_dying_process_left_is_cut_off_and_said(log: AuditLog) -> None:
    with open(f"{log.folder}/audit.jsonl", "a", encoding="ascii") as file:
        file.write('{"number": 7, "at"')
    log.record("decision")
    assert verify(log.folder).sound
    assert [json.loads(line)["event"] for line in lines(log)][-2:] == ["torn", "decision"]


def test_the_chain_runs_on_through_full_files(tmp_path: Path) -> None:
    log = AuditLog(f"{tmp_path}/audit", rotate_bytes=4096)
    for number in range(60):
        log.record("decision", {"target": "x" * 200, "n": number})
    names = sorted(name for name in os.listdir(log.folder) if name.endswith(".jsonl"))
    assert len(names) > 3
    report = verify(log.folder)
    assert (report.sound, report.records) == (True, 60)
    os.unlink(f"{log.folder}/{names[1]}")
    assert {flaw.kind for flaw in verify(log.folder).flaws} == {"missing"}


def test_old_files_go_and_the_log_says_so(tmp_path: Path) -> None:
    log = AuditLog(f"{tmp_path}/audit", rotate_bytes=4096, keep_files=2)
    for number in range(100):
        log.record("decision", {"target": "x" * 200, "n": number})
    report = verify(log.folder)
    assert report.flaws == []
    assert (report.first or 0) > 1
    rotated = sorted(name for name in os.listdir(log.folder) if name.startswith("audit-"))
    assert len(rotated) == 2
    os.unlink(f"{log.folder}/{rotated[0]}")
    assert [flaw.kind for flaw in verify(log.folder).flaws] == ["missing"]


def test_threads_share_one_chain(tmp_path: Path) -> None:
    log = AuditLog(f"{tmp_path}/audit")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: log.record("decision", {"n": n}, durable=False), range(100)))
    assert verify(log.folder).records == 100
    assert verify(log.folder).sound


def test_a_log_that_others_can_write_is_refused(log: AuditLog) -> None:
    os.chmod(f"{log.folder}/audit.jsonl", 0o666)
    with pytest.raises(UnsafeFile):
        log.record("decision")


def test_a_decision_that_cannot_be_written_down_does_not_happen(
    log: AuditLog, tmp_path: Path
) -> None:
    service = ApprovalService(open_store(f"sqlite://{tmp_path}/store/s"), audit=log)
    asked = service.register(read("/srv/a"))
    os.unlink(f"{log.folder}/audit.lock")
    os.mkdir(f"{log.folder}/audit.lock")
    with pytest.raises(AuditFailed):
        service.approve_permanently(asked.id, ADA)
    assert service.get(asked.id).state == "pending"
    assert service.list_decisions() == []
    assert service.check(read("/srv/a")).code == "not_enabled"  # a refusal stays a refusal
    service.close()


def test_decisions_refusals_and_bypasses_are_written_down(tmp_path: Path) -> None:
    log = AuditLog(f"{tmp_path}/audit")
    service = ApprovalService(open_store(f"sqlite://{tmp_path}/store/s"), audit=log)
    service.check(read("/srv/a"))
    service.approve_permanently(service.register(read("/srv/a")).id, ADA)
    service.bypassed(read("/srv/b"), "the mode is bypass")
    service.end_session("sess-1")
    service.close()
    records = [json.loads(line) for line in lines(log)]
    assert [record["event"] for record in records] == ["refusal", "decision", "bypass"]
    assert records[1]["decision"]["by"] == "ada"
    assert "sess-1" not in "".join(lines(log))


class Breaks(SqlStore):
    """A store whose disk is full when it commits."""

    def revoke(self, decision_id: int, by: str, at: float, witness: Witness) -> HistoryEntry:
        with self.database.write():
            witness(
                HistoryEntry(decision_id, at, by, "revoke", MODULE, read("/a").rule, None, None)
            )
            raise ApprovalCheckFailed("the disk of the store is full")


def test_a_decision_that_was_written_down_and_perhaps_not_committed_is_said(
    tmp_path: Path,
) -> None:
    log = AuditLog(f"{tmp_path}/audit")
    service = ApprovalService(Breaks(SqliteDatabase(f"{tmp_path}/store/s")), audit=log)
    with pytest.raises(ApprovalCheckFailed):
        service.revoke(7, ADA)
    events = [json.loads(line) for line in lines(log)]
    assert [record["event"] for record in events] == ["decision", "unconfirmed"]
    assert events[1]["decisions"] == [7]
    service.close()


def test_a_stopped_process_does_not_stop_the_others(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("democrai_osguard.audit.log.LOCK_SECONDS", 0.05)
    held = os.open(f"{log.folder}/audit.lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(AuditFailed):
        log.record("decision")
    os.close(held)
    assert log.record("decision").number == 7
