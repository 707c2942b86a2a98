"""What the command line says to somebody who does not know it yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from command_line import osguard

from democrai_osguard.cli.main import COMMANDS, main

if TYPE_CHECKING:
    from pathlib import Path


def _groups() -> list[str]:
    context = click.Context(main)
    found = {name: main.get_command(context, name) for name in COMMANDS}
    return ["", *(name for name, command in found.items() if isinstance(command, click.Group))]


@pytest.mark.parametrize("name", _groups())
def test_no_line_of_a_list_of_commands_is_cut_off(name: str) -> None:
    _, heading, commands = osguard(*name.split(), "--help").stdout.partition("Commands:")
    assert heading
    assert [line for line in commands.splitlines() if line.endswith("...")] == []


def test_a_command_that_is_misspelt_is_led_to_the_right_one() -> None:
    done = osguard("statsu")
    assert done.returncode == 64
    assert done.stderr == ("democrai-osguard: No such command 'statsu'. Did you mean 'status'?\n")


def test_a_command_that_is_like_none_is_said_to_be_none() -> None:
    assert osguard("frobnicate").stderr == "democrai-osguard: No such command 'frobnicate'.\n"


def test_an_act_is_asked_about_in_words_that_help_explains() -> None:
    assert "RESOURCE is network, filesystem or" in osguard("explain", "--help").stdout
    done = osguard("explain", "--subject", "module:a", "file", "read", "/srv")
    assert done.stderr.startswith("democrai-osguard: Invalid value for '[RESOURCE]': 'file' is")


def test_a_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("Meet at noon.\n")
    done = osguard("why", str(file))
    assert done.returncode == 64
    assert done.stderr.startswith(f"democrai-osguard: '{file}': not a trace of democrai-launch: ")
