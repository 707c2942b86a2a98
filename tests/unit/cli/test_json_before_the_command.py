"""`--json` means the same before a command as behind it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import click
import pytest
from approvals.command import COMMAND
from command_line import osguard

from democrai_osguard.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_command_takes_it_from_before_its_name(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text("{}")
    words = ("explain", "--manifest", str(file), "--subject", "module:a", "filesystem", "read", "/")
    before, behind = osguard("--json", *words), osguard(*words, "--json")
    assert json.loads(before.stdout)["decision"] == "requires_approval"
    assert (before.returncode, before.stdout) == (behind.returncode, behind.stdout)


def test_so_does_a_command_of_two_words(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text("{}")
    done = osguard("--json", "manifest", "check", str(file))
    assert json.loads(done.stdout)["valid"] is True
    assert osguard("manifest", "check", str(file)).stdout.startswith(f"{file}: sound")


def _leaves(command: click.Command, *name: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(name), command
        return
    context = click.Context(command)
    for each in command.list_commands(context):
        found = command.get_command(context, each)
        assert found is not None
        yield from _leaves(found, *name, each)


def test_every_command_has_it() -> None:
    without = [
        name
        for name, command in _leaves(main)
        if not any("--json" in parameter.opts for parameter in command.params)
    ]
    assert without == []


@pytest.mark.needs("landlock", "seccomp")
def test_the_demo_tells_machines_how_each_act_went() -> None:
    done = osguard("demo", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["holds"]) == (0, True)
    assert [(act["allowed"], act["agrees"]) for act in document["acts"]] == [
        (True, True),
        (False, True),
        (False, True),
        (False, True),
    ]
    assert all(act["works_free"] and act["reason"] for act in document["acts"])


def test_the_page_tells_machines_its_link(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    with subprocess.Popen(
        [*COMMAND, "serve", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "DEMOCRAI_STATE_DIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        process.terminate()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=\S+", told["link"])
    assert told["words"] == "Open this link; it works once:"
