from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard_helper import records
from democrai_osguard_helper.endpoints import Endpoint, NameRule, parse_network
from democrai_osguard_helper.fields import ProtocolViolation
from democrai_osguard_helper.journal import Journal, JournalFailed
from democrai_osguard_helper.protocol import Subject
from democrai_osguard_helper.records import Asked, Cover, Record

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD = Record(
    name="0123456789ab",
    identity=42,
    uid=1000,
    subject=Subject("module", "demo"),
    session=None,
    endpoints=(Endpoint(parse_network("192.0.2.0/24"), 443, "tcp"),),
    names=(NameRule("a.example.com", None, None, (parse_network("10.0.0.0/8"),)),),
    addresses=(Endpoint(parse_network("2001:db8::1")),),
    since=1_700_000_000,
)


CHANGED = RECORD.with_policy((), (), ())


@pytest.mark.parametrize("record", [RECORD, CHANGED])
def test_a_record_survives(tmp_path: Path, record: Record) -> None:
    journal = Journal(str(tmp_path / "state"))
    journal.save(record)
    journal.close()
    again = Journal(str(tmp_path / "state"))
    assert dict(again.load()) == {RECORD.name: record}
    again.forget(RECORD.name)
    assert dict(again.load()) == {}
    again.close()


def test_a_record_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(str(tmp_path))
    done: list[str] = []
    sync, rename = os.fsync, os.rename

    def noted_sync(descriptor: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        sync(descriptor)

    def noted_rename(old: str, new: str) -> None:
        done.append(f"rename {Path(old).name} {Path(new).name}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "rename", noted_rename)
    journal.save(RECORD)
    draft, own = f"{RECORD.name}.new", f"{RECORD.name}.json"
    assert done == [f"sync {draft}", f"rename {draft} {own}", f"sync {tmp_path.name}"]
    done.clear()
    journal.forget(RECORD.name)
    assert done == [f"sync {tmp_path.name}"]
    journal.close()


def test_only_root_may_read_it(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "state"))
    journal.save(RECORD)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()]
    assert (set(modes), stat.S_IMODE((tmp_path / "state").stat().st_mode)) == ({0o600}, 0o700)
    journal.close()


def test_a_damaged_record_is_told_apart_and_a_draft_is_dropped(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    (tmp_path / "ffffffffffff.json").write_bytes(records.dump(RECORD)[:-1])
    (tmp_path / "eeeeeeeeeeee.new").write_bytes(b"half")
    assert dict(journal.load()) == {"ffffffffffff": None}
    assert not (tmp_path / "eeeeeeeeeeee.new").exists()
    journal.close()


def test_two_helpers_do_not_share_a_state(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    with pytest.raises(JournalFailed, match="another helper"):
        Journal(str(tmp_path))
    journal.close()


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "state"))
    (tmp_path / "state" / f"{RECORD.name}.new").mkdir()
    with pytest.raises(JournalFailed):
        journal.save(RECORD)
    journal.close()


@given(st.binary(max_size=100))
def test_no_bytes_are_taken_for_a_record(payload: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        records.parse(payload)


def test_a_record_of_another_version_is_not_guessed_at() -> None:
    payload = records.dump(RECORD).replace(b'"version":3', b'"version":4')
    with pytest.raises(ProtocolViolation, match="another version"):
        records.parse(payload)


def test_a_record_of_the_version_before_is_read() -> None:
    document = json.loads(records.dump(RECORD)) | {"version": 2}
    del document["refresh"], document["follows"]
    assert records.parse(json.dumps(document).encode()) == RECORD
    document["version"] = 1
    with pytest.raises(ProtocolViolation):
        records.parse(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("address", "port", "word", "covered"),
    [
        ("192.0.2.9", 443, "tcp", True),
        ("192.0.2.9", 443, "udp", False),
        ("192.0.2.9", 444, "tcp", False),
        ("192.0.3.9", 443, "tcp", False),
        ("2001:db8::1", 1, "udp", True),
        ("2001:db8::2", 1, "udp", False),
    ],
)
def test_a_policy_covers_what_it_names(address: str, port: int, word: str, covered: bool) -> None:
    packed = parse_network(address).packed
    assert Cover(RECORD.policy()).covers(packed, port, word) is covered


def test_a_record_remembers_what_its_sandbox_was_made_with() -> None:
    first = Asked(RECORD.endpoints, RECORD.names)
    assert RECORD.asked() == CHANGED.asked() == first
    assert CHANGED.with_policy(RECORD.endpoints, (), ()).asked() == first
    assert CHANGED.with_policy(RECORD.endpoints, RECORD.names, RECORD.addresses) == RECORD


@pytest.mark.parametrize(
    ("entry", "make"),
    [
        ("...json", lambda path: path.write_bytes(b"{}")),
        ("0123456789abc.json", lambda path: path.write_bytes(b"{}")),
        ("ffffffffffff.json", lambda path: path.mkdir()),
        ("ffffffffffff.json", os.mkfifo),  # reading it would wait for ever
        ("ffffffffffff.json", lambda path: path.symlink_to("/dev/zero")),
        ("dir.new", lambda path: path.mkdir()),
    ],
)
def test_what_is_no_record_is_passed_over(
    tmp_path: Path, entry: str, make: Callable[[Path], object]
) -> None:
    journal = Journal(str(tmp_path))
    journal.save(RECORD)
    make(tmp_path / entry)
    assert dict(journal.load()) == {RECORD.name: RECORD}
    journal.close()


@pytest.mark.parametrize("size", [0, 1, 7, -1])
def test_a_record_that_was_cut_is_damaged_wherever_it_was_cut(tmp_path: Path, size: int) -> None:
    journal = Journal(str(tmp_path))
    (tmp_path / f"{RECORD.name}.json").write_bytes(records.dump(RECORD)[:size])
    assert dict(journal.load()) == {RECORD.name: None}
    journal.close()


def test_a_record_under_another_name_is_damaged(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    (tmp_path / "ffffffffffff.json").write_bytes(records.dump(RECORD))
    assert dict(journal.load()) == {"ffffffffffff": None}
    journal.close()


def test_others_may_pass_the_folders_above_it(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        Journal(str(tmp_path / "run" / "state" / "main")).close()
    finally:
        os.umask(before)
    folders = [tmp_path / "run", tmp_path / "run/state", tmp_path / "run/state/main"]
    assert [stat.S_IMODE(each.stat().st_mode) for each in folders] == [0o755, 0o700, 0o700]
