"""The programs that the helper runs, and the one that waits to be used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from democrai_osguard_helper import commands
from democrai_osguard_helper.commands import Commands
from democrai_osguard_helper.layers import LayerFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ECHO = ("cat",)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    monkeypatch.setattr(commands, "SETS", ECHO)
    made = Commands()
    yield made
    made.close()
    with pytest.raises(ChildProcessError):  # nothing that was started is left
        os.waitpid(-1, os.WNOHANG)


def _waiting(runner: Commands) -> int:
    assert runner.spare is not None
    return runner.spare.pid


def test_the_program_that_waits_is_used_once(runner: Commands) -> None:
    assert runner.run((ECHO, "one")) == ["one"]
    runner.prepare()
    first = _waiting(runner)
    runner.prepare()
    assert _waiting(runner) == first
    assert runner.run((ECHO, "two"), (ECHO, "three")) == ["two", "three"]
    assert runner.spare is None
    runner.prepare()
    assert _waiting(runner) != first


def test_another_program_does_not_take_its_place(runner: Commands) -> None:
    runner.prepare()
    first = _waiting(runner)
    assert runner.run((("cat", "-u"), "one")) == ["one"]
    assert _waiting(runner) == first


def test_one_that_ended_while_it_waited_is_not_used(runner: Commands) -> None:
    runner.prepare()
    assert runner.spare is not None
    runner.spare.kill()
    runner.spare.wait()
    assert runner.run((ECHO, "one")) == ["one"]
    runner.prepare()
    assert runner.run((ECHO, "two")) == ["two"]


def test_a_failure_of_the_one_that_waited_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "SETS", ("false",))
    made = Commands()
    made.prepare()
    with pytest.raises(LayerFailed, match="false: failed"):
        made.run((("false",), ""))
    with pytest.raises(LayerFailed, match="not installed"):
        made.run((("no-such-program",), ""))
    made.close()


def test_a_program_that_cannot_be_started_is_a_failure_and_ends_the_others(
    runner: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"no program")
    broken.chmod(0o755)
    monkeypatch.setattr(commands, "_PLACES", (*commands._PLACES, str(tmp_path)))  # noqa: SLF001
    with pytest.raises(LayerFailed, match="broken: Exec format error"):
        runner.run((ECHO, "one"), (("broken",), "two"))
