from __future__ import annotations

import stat
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
    from pathlib import Path

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
    payload = records.dump(RECORD).replace(b'"version":2', b'"version":3')
    with pytest.raises(ProtocolViolation, match="another version"):
        records.parse(payload)


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
