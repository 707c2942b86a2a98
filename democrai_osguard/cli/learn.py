"""`democrai-osguard learn`: run a command once, and print the smallest manifest for it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import click

from democrai_osguard.access import Subject, SubjectType
from democrai_osguard.approvals.opening import open_service
from democrai_osguard.cli.output import printable, say_json
from democrai_osguard.enforcement.asker import serve
from democrai_osguard.learning.folding import Entry, Learnt, fold
from democrai_osguard.learning.sightings import NEEDED, Sightings, read_sightings, sightings
from democrai_osguard.manifest import dump_access

if TYPE_CHECKING:
    from collections.abc import Mapping

_LAUNCHER = (sys.executable, "-I", "-m", "democrai_osguard_launcher")
_MODE = 0o600
_SUBJECT = Subject(SubjectType.CORE, "learn")
_PATIENCE = 600.0  # seconds for an answer
_SEEN = {"call": "asked", "pid": 0, "program": ""}


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--manifest-out", type=click.Path(dir_okay=False), help="Write the manifest to this file."
)
@click.option(
    "--manifest", type=click.Path(exists=True, dir_okay=False), help="Learn what this one lacks."
)
@click.option(
    "--deny-first", is_flag=True, help="Allow nothing; ask about each act on files instead."
)
@click.option("--json", "as_json", is_flag=True, help="Print counts and examples as JSON as well.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def learn(
    command: tuple[str, ...],
    manifest_out: str | None,
    manifest: str | None,
    *,
    deny_first: bool,
    as_json: bool,
) -> int:
    """Run COMMAND with everything allowed, and print the manifest that would have let it run.

    Nothing protects you while it runs: learn from what you trust, or in a place of its own.
    """
    given = ("--manifest", manifest) if manifest else ()
    code, run = (_asked if deny_first else _observed)(given, command)
    if run is None:
        return code  # the launcher has said why
    learnt = fold(run, _names(run))
    for line in _words(learnt, run):
        click.echo(printable(line), err=True)
    _write(learnt, manifest_out, as_json=as_json)
    return code


def _observed(given: tuple[str, ...], command: tuple[str, ...]) -> tuple[int, Sightings | None]:
    """Run the command with everything allowed; return what it needed."""
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "observed")
        words = [*_LAUNCHER, "--observe", record, *given, "--", *command]
        done = subprocess.run(words, check=False)  # noqa: S603 - the command is what was asked for
        return done.returncode, read_sightings(record) if os.path.exists(record) else None


def _asked(given: tuple[str, ...], command: tuple[str, ...]) -> tuple[int, Sightings]:
    """Run the command with nothing allowed; return what a person approved."""
    ours, theirs = socket.socketpair()
    words = [*_LAUNCHER, "--supervised", "--ask-fd", str(theirs.fileno()), *given, "--", *command]
    with ours, subprocess.Popen(words, pass_fds=(theirs.fileno(),)) as running:  # noqa: S603 - likewise
        theirs.close()
        allowed = serve(ours, open_service(), _SUBJECT, _PATIENCE)
    lines = [{**_SEEN, "missing": _missing(each), "path": each["target"]} for each in allowed]
    return running.returncode, sightings(NEEDED, command, lines)


def _missing(question: Mapping[str, object]) -> dict[str, object]:
    return {name: question[name] for name in ("resource_type", "operation", "target")}


def _names(run: Sightings) -> dict[str, str]:
    """Return which addresses the names mean that were looked up in the run."""
    names: dict[str, str] = {}
    for name in run.lookups:
        try:
            found = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
        except OSError:
            continue
        names.update({str(address[0]): name for *_, address in found})
    return names


def _write(learnt: Learnt, path: str | None, *, as_json: bool) -> None:
    document: dict[str, object] = {"access": dump_access(learnt.rules)}
    text = json.dumps(document, indent=2) + "\n"
    if path is not None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    if as_json:
        entries = [_fields(entry) for entry in learnt.entries]
        say_json({**document, "entries": entries, "left_out": list(learnt.left_out)})
    elif path is None:
        click.echo(text, nl=False)


def _fields(entry: Entry) -> dict[str, object]:
    return {
        **dump_access([entry.rule])[0],
        "count": entry.count,
        "examples": list(entry.examples),
        "programs": list(entry.programs),
        "marks": list(entry.marks),
    }


def _words(learnt: Learnt, run: Sightings) -> list[str]:
    lines = [f"{len(learnt.entries)} rule(s) for: {' '.join(run.command)}"]
    for entry in learnt.entries:
        marks = "".join(f" [{mark.upper()}]" for mark in entry.marks)
        others = [path for path in entry.examples if path != entry.rule.target]
        such = f", such as {', '.join(others)}" if others else ""
        lines.append(f"  {entry.rule}{marks}: {entry.count} time(s){such}")
    lines += [f"  left out: {reason}" for reason in learnt.left_out]
    if not run.complete:
        lines.append("  the record was full before the run ended: the manifest may lack rules")
    return lines
