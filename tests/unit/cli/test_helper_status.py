"""What `helper status` advises where the helper cannot be asked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from democrai_osguard.cli import helper
from democrai_osguard_helper.client import HelperUnavailable
from democrai_osguard_helper.protocol import LayerState, Listing, Report, Subject

if TYPE_CHECKING:
    from pathlib import Path


def _status(monkeypatch: pytest.MonkeyPatch, path: str, cause: OSError) -> str:
    def refuse(*_: object) -> None:
        raise HelperUnavailable(f"{path}: {cause.strerror}") from cause

    monkeypatch.setenv("DEMOCRAI_OS_HELPER_SOCKET", path)
    monkeypatch.setattr(helper, "Client", refuse)
    return CliRunner().invoke(helper.helper, ["status"]).output


@pytest.mark.parametrize(
    ("group", "advice"),
    [
        ("daemon", "join its group and log in again: sudo usermod --append --groups daemon <you>"),
        ("root", "root alone may ask it: it was started without --group"),
        (None, "sudo usermod --append --groups democrai-osguard <you>"),
    ],
)
def test_who_may_not_ask_is_told_who_may(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group: str | None, advice: str
) -> None:
    path = tmp_path / "helper.sock"
    if group is not None:
        path.touch()
        gid = {"daemon": 1, "root": 0}[group]
        real = os.stat
        shown = os.stat_result((0, 0, 0, 0, 0, gid, *[0] * 4))
        monkeypatch.setattr(
            os, "stat", lambda at, **more: shown if at == str(path) else real(at, **more)
        )
    said = _status(monkeypatch, str(path), PermissionError(13, "Permission denied"))
    assert f"You may not ask the helper at {path}: Permission denied" in said
    assert advice in said
    assert "systemctl" not in said


def test_where_nobody_listens_it_is_to_be_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = FileNotFoundError(2, "No such file or directory")
    said = _status(monkeypatch, str(tmp_path / "helper.sock"), missing)
    assert "start it: systemctl start democrai-osguard-helper.socket" in said


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("", "works"),
        ("bpf: switched off by the operator", "bpf: switched off by the operator"),
        (
            "iptables-restore: failed",
            "iptables-restore: failed; the helper tries it again by itself",
        ),
    ],
)
def test_a_layer_that_is_missing_is_said_to_be_tried_again(reason: str, words: str) -> None:
    report = Report(1, "main", (LayerState("bpf", reason),), "pidfd", 0, "idle", 0, 0)
    said = list[tuple[str, str]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(helper, "say_fields", said.extend)
        helper._say(report, (), "/run/h")  # noqa: SLF001 - what `status` prints of an answer
    assert ("bpf", words) in said


def test_what_is_held_is_counted_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(1, "main", (LayerState("bpf", ""),), "pidfd", 1, "idle", 0, 0)
    names = ("a.example", "b.example")
    tool = Subject("tool", "a")
    held = Listing("7", 1000, tool, None, 0, 0, 1, names, ("bpf",), True, "held", None)
    helper._say(report, (held,), "/run/h")  # noqa: SLF001 - what `status` prints of an answer
    assert "tool:a  held by bpf  1 place, 2 names, 0 refused" in capsys.readouterr().out
