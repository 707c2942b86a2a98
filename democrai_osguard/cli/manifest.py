"""`democrai-osguard manifest`: check a manifest, or print the access that it declares."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from democrai_osguard.cli.exits import Exit
from democrai_osguard.cli.output import counted, printable, say, say_json
from democrai_osguard.errors import ManifestError
from democrai_osguard.manifest import Manifest, dump_access, load_manifest, read_document
from democrai_osguard.manifest_shape import FLAT, PHASED, PHASES

if TYPE_CHECKING:
    from democrai_osguard.access import Rule

_KINDS = tuple(str(each) for each in (*FLAT, *PHASED))


@click.group()
def manifest() -> None:
    """Check manifests and show what they declare."""


@manifest.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--kind", type=click.Choice(_KINDS), help="What the manifest is for; else it is seen."
)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def check(file: str, kind: str | None, *, as_json: bool) -> int:
    """Say whether FILE is a sound manifest, and else what is wrong."""
    problems: tuple[str, ...] = ()
    manifests: list[Manifest] = []
    try:
        subject = kind or guess_kind(read_document(file))
        phases = PHASES if subject in PHASED else (None,)
        manifests = [load_manifest(file, subject, phase) for phase in phases]
    except ManifestError as error:
        problems = error.problems
    warnings = tuple(dict.fromkeys(text for each in manifests for text in each.warnings))
    if as_json:
        say_json(_report(file, problems, warnings, manifests))
    else:
        _say_check(file, problems, warnings, manifests)
    return Exit.DENIED if problems else Exit.ALLOWED


@manifest.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--kind", type=click.Choice(_KINDS), help="What the manifest is for; else it is seen."
)
@click.option("--phase", type=click.Choice(PHASES), help="For engines and extractors.")
@click.option("--json", "as_json", is_flag=True, help="For machines, as it always is.")
def access(file: str, kind: str | None, phase: str | None, *, as_json: bool) -> None:  # noqa: ARG001 - it is JSON
    """Print what FILE declares as the value of DEMOCRAI_ACCESS."""
    subject = kind or guess_kind(read_document(file))
    declared = load_manifest(file, subject, phase)
    for warning in declared.warnings:
        click.echo(printable(f"democrai-osguard: warning: {warning}"), err=True)
    click.echo(json.dumps(dump_access((*declared.access, *added_rules(subject, phase)))))


def guess_kind(document: object) -> str:
    """Return the kind of a manifest by its shape: phases are an engine's or an extractor's."""
    return "engine" if isinstance(document, dict) and set(PHASES) & set(document) else "module"


def added_rules(kind: str, phase: str | None) -> tuple[Rule, ...]:
    """Return what a phase has beside what is declared: an install runs pip, which has its hosts."""
    if phase != "install" or kind not in PHASED:
        return ()
    from democrai_osguard.runtime.interpreter import interpreter_rules  # noqa: PLC0415 - as below
    from democrai_osguard.runtime.package_index import package_index_rules  # noqa: PLC0415 - it asks pip

    return (*package_index_rules(), *interpreter_rules())


def _say_check(
    file: str, problems: tuple[str, ...], warnings: tuple[str, ...], manifests: list[Manifest]
) -> None:
    for problem in problems:
        say(f"{file}: error: {problem}")
    for warning in warnings:
        say(f"{file}: warning: {warning}")
    if problems:
        say(f"{file}: {counted(len(problems), 'problem')}; this manifest would not be loaded")
        return
    for each in manifests:
        phase = "" if each.phase is None else f" in {each.phase}"
        say(f"{file}: sound; {counted(len(each.access), 'rule')}{phase}")
        for rule in each.access:
            say(f"  {rule}")


def _report(
    file: str, problems: tuple[str, ...], warnings: tuple[str, ...], manifests: list[Manifest]
) -> dict[str, object]:
    return {
        "file": file,
        "valid": not problems,
        "errors": list(problems),
        "warnings": list(warnings),
        "sections": [
            {
                "kind": str(each.kind),
                "phase": each.phase,
                "access": dump_access(each.access),
                "allowed_imports": list(each.allowed_imports),
            }
            for each in manifests
        ],
    }
