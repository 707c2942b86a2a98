"""Reading a trace: strictly, and with the place of what is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from democrai_osguard.learning.sentences import sentences
from democrai_osguard.learning.sightings import TraceError, read_sightings

if TYPE_CHECKING:
    from pathlib import Path

HEAD = {"format": 1, "mode": "refused", "command": ["cat", "x"]}
RULE = {"resource_type": "filesystem", "operation": "read", "target": "/x"}
LINE = {"call": "openat", "pid": 7, "program": "/bin/cat", "missing": RULE, "path": "/x"}


def trace(folder: Path, *lines: object) -> Path:
    file = folder / "trace"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def test_equal_lacks_are_one_sighting(tmp_path: Path) -> None:
    run = read_sightings(trace(tmp_path, HEAD, LINE, {**LINE, "pid": 8}, {"lookup": "a.example"}))
    assert [(each.count, each.pids) for each in run.seen] == [(2, [7, 8])]
    assert (run.lookups, run.complete) == (("a.example",), True)
    assert "cat (process 7) wanted to read /x, 2 times: no rule allows it." in sentences(run)


def test_a_call_that_no_rule_allows_is_told_by_its_name(tmp_path: Path) -> None:
    nothing = {**LINE, "call": "mknod", "missing": None, "path": None}
    run = read_sightings(trace(tmp_path, HEAD, nothing, {**nothing, "call": "open"}))
    assert [each.call for each in run.seen] == ["mknod", "open"]
    assert "  No line of a manifest allows this call." in sentences(run)


def test_what_was_refused_is_counted_in_plain_words(tmp_path: Path) -> None:
    one = read_sightings(trace(tmp_path, HEAD, LINE))
    assert next(sentences(one)) == "1 thing was refused to: cat x"
    more = {**LINE, "missing": {**RULE, "target": "/y"}, "path": "/y"}
    two = read_sightings(trace(tmp_path, HEAD, LINE, more))
    assert next(sentences(two)) == "2 things were refused to: cat x"


def test_a_temporary_file_is_led_to_a_folder_of_its_own(tmp_path: Path) -> None:
    path = "/tmp/cc7Qz.s"
    made = {**LINE, "missing": {**RULE, "operation": "create", "target": path}, "path": path}
    read = {**LINE, "missing": {**RULE, "target": path}, "path": path}
    other = {**LINE, "missing": {**RULE, "target": f"{path}2"}, "path": f"{path}2"}
    said = list(sentences(read_sightings(trace(tmp_path, HEAD, made, read, other))))
    advice = [line for line in said if "TMPDIR" in line]
    assert len(advice) == 2  # also to read it; but not what was there before
    assert all("If it is a temporary file, set TMPDIR to a folder" in line for line in advice)
    assert '"operation": "create"' in advice[0]


def test_a_full_file_says_so(tmp_path: Path) -> None:
    run = read_sightings(trace(tmp_path, HEAD, LINE, {"more": "was left out"}))
    assert "The file was full before the run ended: there was more." in sentences(run)


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ({"format": 2, "mode": "refused"},),
        ({"format": 1, "mode": "guessed"},),
        (HEAD, []),
        (HEAD, {**LINE, "missing": {**RULE, "operation": "write"}}),
        (HEAD, {**LINE, "missing": {**RULE, "target": ""}}),
        (HEAD, {**LINE, "missing": "x"}),
        (HEAD, {**LINE, "pid": "x"}),
        (HEAD, {"call": "openat"}),
        ({**HEAD, "access": {}},),
        ({**HEAD, "access": [{**RULE, "operation": "write"}]},),
        (HEAD, {"moved": "/x", "to": 1, "folder": False}),
        (HEAD, {"moved": "/x"}),
    ],
)
def test_what_is_not_understood_is_an_error(lines: tuple[object, ...], tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        read_sightings(trace(tmp_path, *lines))


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(json.dumps(HEAD) + "\n{\n")
    with pytest.raises(TraceError, match="line 2"):
        read_sightings(tmp_path / "trace")
