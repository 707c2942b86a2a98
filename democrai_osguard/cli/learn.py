"""`democrai-osguard learn`: run a command once, and print the smallest manifest for it."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

from democrai_osguard.access import Subject, SubjectType
from democrai_osguard.approvals.opening import open_service
from democrai_osguard.cli.exits import Exit
from democrai_osguard.cli.output import counted, printable, say_json
from democrai_osguard.enforcement.asker import serve
from democrai_osguard.learning.folding import TEMPORARY, Entry, Learnt, fold
from democrai_osguard.learning.running import passing_signals_on
from democrai_osguard.learning.sightings import NEEDED, Sightings, read_sightings, sightings
from democrai_osguard.manifest import dump_access

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MODE = 0o600
_SUBJECT = Subject(SubjectType.CORE, "learn")
_PATIENCE = 600  # seconds for an answer
_OWN_TMPDIR = "set TMPDIR to a folder of its own"
_SEEN = {"call": "asked", "pid": 0, "program": ""}


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--manifest-out", type=click.Path(dir_okay=False), help="Write the manifest to this file."
)
@click.option(
    "--manifest", type=click.Path(exists=True, dir_okay=False), help="Learn what this one lacks."
)
@click.option(
    "--deny-first", is_flag=True, help="Allow nothing; ask about each file and connection instead."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print counts and examples as JSON as well; the command's output goes to stderr.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def learn(
    command: tuple[str, ...],
    manifest_out: str | None,
    manifest: str | None,
    *,
    deny_first: bool,
    as_json: bool,
) -> int:
    """Run COMMAND with everything allowed, and print what it needed.

    That is the smallest manifest that would have let it run.

    Nothing protects you while it runs: learn from what you trust, or in a place of its own.
    """
    _check_place(manifest_out)
    given = ("--manifest", manifest) if manifest else ()
    with _output_to_the_error_stream() if as_json else nullcontext():
        code, run = (_asked if deny_first else _observed)(given, command)
    if run is None:
        return code  # the launcher has said why
    learnt = fold(run, _names(run))
    for line in told(learnt, run):
        click.echo(printable(line), err=True)
    is_written = _write(learnt, manifest_out, as_json=as_json)
    return code if is_written else code or Exit.USAGE


@contextmanager
def _output_to_the_error_stream() -> Iterator[None]:
    """Keep standard output for one document: what the command prints goes where errors go."""
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)


def _check_place(path: str | None) -> None:
    """Raise UsageError for a file that could not be written once the command has run."""
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise click.UsageError(f"--manifest-out: there is no folder {folder}")
    place = path if os.path.exists(path) else folder
    if not os.access(place, os.W_OK):
        raise click.UsageError(f"--manifest-out: {place} cannot be written")


def _observed(given: tuple[str, ...], command: tuple[str, ...]) -> tuple[int, Sightings | None]:
    """Run the command with everything allowed; return what it needed."""
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "observed")
        with passing_signals_on() as running:
            running.start(["--observe", record, *given, "--", *command])
            code = running.wait()
        return code, read_sightings(record) if os.path.exists(record) else None


def _asked(given: tuple[str, ...], command: tuple[str, ...]) -> tuple[int, Sightings]:
    """Run the command with nothing allowed; return what a person approved."""
    ours, theirs = socket.socketpair()
    service = open_service()
    asking = ["--supervised", "--ask-fd", str(theirs.fileno()), "--ask-timeout", str(_PATIENCE)]
    words = [*asking, *given, "--", *command]
    with passing_signals_on() as running, ours:
        running.start(words, keep=(theirs.fileno(),))
        theirs.close()
        allowed = serve(ours, service, _SUBJECT, _PATIENCE)
        code = running.wait()
    lines = [{**_SEEN, "missing": _missing(each), "path": each["target"]} for each in allowed]
    return code, sightings(NEEDED, command, lines)


def _missing(question: Mapping[str, object]) -> dict[str, object]:
    """Return the rule: at the folder where that alone would do, else at the target."""
    kind = {name: question[name] for name in ("resource_type", "operation")}
    return {**kind, "target": question.get("folder", question["target"])}


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


def _write(learnt: Learnt, path: str | None, *, as_json: bool) -> bool:
    """Write the manifest where it was asked for, or print it; tell whether that worked."""
    document: dict[str, object] = {"access": dump_access(learnt.rules)}
    text = json.dumps(document, indent=2) + "\n"
    is_kept = path is not None and _keep(text, path)
    if as_json:
        entries = [_fields(entry) for entry in learnt.entries]
        say_json({**document, "entries": entries, "left_out": list(learnt.left_out)})
    elif not is_kept:
        click.echo(text, nl=False)
    return is_kept or path is None


def _keep(text: str, path: str) -> bool:
    """Write the file; where that fails, say so: what was seen is not lost."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        why = f"--manifest-out: {path}: {error.strerror}; the manifest is printed instead"
        click.echo(printable(f"democrai-osguard: {why}"), err=True)
        return False
    return True


def _fields(entry: Entry) -> dict[str, object]:
    return {
        **dump_access([entry.rule])[0],
        "count": entry.count,
        "examples": list(entry.examples),
        "programs": list(entry.programs),
        "marks": list(entry.marks),
        "covered_by": None if entry.covered_by is None else str(entry.covered_by),
    }


def told(learnt: Learnt, run: Sightings) -> list[str]:
    """Return what is said of a run beside its manifest."""
    lines = [f"{counted(len(learnt.rules), 'rule')} for: {' '.join(run.command)}"]
    for entry in learnt.entries:
        marks = "".join(f" [{mark.upper()}]" for mark in entry.marks)
        others = [path for path in entry.examples if path != entry.rule.target]
        such = f", such as {', '.join(others)}" if others else ""
        covered = f", covered by {entry.covered_by}" if entry.covered_by else ""
        lines.append(f"  {entry.rule}{marks}: {counted(entry.count, 'time')}{such}{covered}")
    opened = {rule.target: None for rule in learnt.rules if rule.target in TEMPORARY}
    lines += [f"  instead of {each}: {_OWN_TMPDIR}, and learn again" for each in opened]
    lines += [f"  left out: {reason}" for reason in learnt.left_out]
    if not run.complete:
        lines.append("  the record was full before the run ended: the manifest may lack rules")
    return lines
