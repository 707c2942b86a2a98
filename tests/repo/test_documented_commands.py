"""Every command in the documents is run, or stands here with the reason why not."""

from __future__ import annotations

import functools
import json
import re
from itertools import takewhile
from typing import TYPE_CHECKING

import pytest
from command_line import osguard
from repo.console import Command, Stage, agrees, steps

from democrai_osguard import load_manifest, settings
from democrai_osguard.cli.main import COMMANDS
from democrai_osguard_launcher.options import HELP

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/agents.md",
    "docs/contributing.md",
    "docs/errors.md",
    "docs/manifests.md",
    "docs/operators.md",
    "docs/sdk.md",
)
PROGRAMS = {"docs/agents.md": ("git", "node")}  # that a host may lack
# Commands that no test here can run: how they start, and the reason.
NOT_RUN = {
    "make ": "works on this tree and its .venv; CI runs the targets themselves",
    "sudo make ": "installs for the whole machine, as root; tests/vm does it on real machines",
    "sudo systemctl ": "needs root and systemd; tests/vm does it",
    "sudo journalctl ": "needs root and systemd",
    "sudo usermod ": "changes a user of this machine",
    "democrai-osguard serve": "serves until it is ended; tests/web opens the page",
    "democrai-osguard requests watch": "waits for a person; tests/unit/approvals presses its keys",
    "democrai-launch --supervised ": "waits for a person; tests/kernel answers in their place",
    "democrai-launch --connect ": "talks to another machine; tests/kernel and tests/root do it",
}
INLINE = re.compile(r"`(democrai-(?:osguard|launch) [^`…]+)`")
MAKE = re.compile(r"(?:`|^\$ |sudo )make ([a-z-]+)", re.MULTILINE)
OPTION = re.compile(r"--[a-z][a-z-]*")


def _left_out(command: Command) -> bool:
    return command.text.startswith(tuple(NOT_RUN))


def _text(repo: Path, document: str) -> str:
    return (repo / document).read_text(encoding="utf-8")


# On an older kernel the launcher adds a line about signals to everything.
@pytest.mark.needs("landlock-scopes", "seccomp")
@pytest.mark.parametrize(
    "document",
    [pytest.param(each, marks=pytest.mark.needs(*PROGRAMS.get(each, ()))) for each in DOCUMENTS],
)
def test_each_command_prints_what_the_document_says(
    repo: Path, tmp_path: Path, document: str
) -> None:
    stage = Stage(tmp_path)
    for step in steps(_text(repo, document)):
        if not isinstance(step, Command):
            stage.prepare(step)
        elif not _left_out(step):
            printed = stage.run(step)
            where = f"{document}:{step.line}: {step.text}"
            assert agrees(step.output, printed), f"{where}\nprinted:\n{printed}"


@pytest.mark.needs("landlock", "seccomp")
def test_commands_that_are_not_run_are_still_understood(repo: Path, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    shown = [step for document in DOCUMENTS for step in steps(_text(repo, document))]
    left = [step for step in shown if isinstance(step, Command) and _left_out(step)]
    launches = [step for step in left if step.text.startswith("democrai-launch ")]
    assert launches
    for step in launches:
        # A supervised command names its subject, which only a run asks for.
        assert ("--supervised" in step.text) <= ("--subject" in step.text), step.text
        options, _, command = step.text.partition(" -- ")
        assert command
        asked = Command(step.line, f"{options} --explain > /dev/null; echo $?", ())
        assert stage.run(asked).splitlines()[-1] == "0", step.text


def test_every_document_with_commands_is_played(repo: Path) -> None:
    pages = [*repo.glob("*.md"), *repo.glob("[a-z]*/*.md"), *repo.glob("docs/*/*.md")]
    shown = {
        str(page.relative_to(repo))
        for page in pages
        if any(isinstance(step, Command) for step in steps(page.read_text(encoding="utf-8")))
    }
    assert shown <= set(DOCUMENTS)


def test_every_reason_not_to_run_a_command_is_still_needed(repo: Path) -> None:
    shown = [
        step.text
        for document in DOCUMENTS
        for step in steps(_text(repo, document))
        if isinstance(step, Command)
    ]
    assert [start for start in NOT_RUN if not any(text.startswith(start) for text in shown)] == []


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (("a b",), "a b\n", True),
        (("a b",), "a c\n", False),
        (("a …",), "a whatever\n", True),
        (("a …",), "a\nb\n", False),
        (("a", "…", "d"), "a\nb\nc\nd\n", True),
        (("a", "…", "d"), "a\nd\n", True),
        (("a", "…", "d"), "a\nb\n", False),
        ((), "", True),
        ((), "surprise\n", False),
        (("…",), "", True),
    ],
)
def test_an_output_is_compared_word_for_word(
    expected: tuple[str, ...], printed: str, same: bool
) -> None:
    assert agrees(expected, printed) is same


def _known_options(words: list[str]) -> str:
    """Return the help of what a command line names; fail where there is no such command."""
    if words[0] == "democrai-launch":
        return HELP
    names = takewhile(re.compile("[a-z-]+$").match, words[1:])
    path = tuple(names)[:2]  # no command has more than two words
    assert path[0] in COMMANDS, path
    return _help(*path) or _help(path[0])  # the second word may be an argument


@functools.cache
def _help(*path: str) -> str:
    done = osguard(*path, "--help")
    return done.stdout if done.returncode == 0 else ""


def test_commands_in_the_text_name_what_exists(repo: Path) -> None:
    for document in (*DOCUMENTS, "docs/approvals.md", "docs/broker.md", "launcher/README.md"):
        for line in INLINE.findall(_text(repo, document)):
            own = line.partition(" -- ")[0]
            options = set(OPTION.findall(own))
            if options or not own.startswith("democrai-launch"):
                missing = options - set(OPTION.findall(_known_options(own.split())))
                assert not missing, f"{document}: {line}: {missing}"


def test_targets_of_make_in_the_text_exist(repo: Path) -> None:
    makefile = _text(repo, "Makefile")
    for document in DOCUMENTS:
        for target in MAKE.findall(_text(repo, document)):
            assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE), f"{document}: {target}"


def test_rules_in_the_text_are_rules(repo: Path) -> None:
    rules = re.findall(r'`(\{"resource_type".*?\})`', _text(repo, "docs/manifests.md"))
    assert rules
    for rule in rules:
        load_manifest({"access": [json.loads(rule)]}, base="/srv/notes")


def test_the_table_of_settings_is_complete(repo: Path) -> None:
    page = _text(repo, "docs/operators.md")
    rows = re.findall(r"^\| `([a-z_.]+)` \| `(DEMOCRAI_\w+)` \|", page, re.MULTILINE)
    assert {f"sandbox.os.{name}": variable for name, variable in rows} == {
        place: variable
        for variable, place in settings._VARIABLES.items()  # noqa: SLF001 - the one list
    }
