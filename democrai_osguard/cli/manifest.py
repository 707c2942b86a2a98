"""`democrai-osguard manifest`: check a manifest, or print the access that it declares."""

from __future__ import annotations

import json

import click

from democrai_osguard.cli.exits import Exit
from democrai_osguard.cli.output import say, say_json
from democrai_osguard.errors import ManifestError
from democrai_osguard.manifest import Manifest, dump_access, load_manifest, read_document
from democrai_osguard.manifest_shape import PHASED, PHASES

_KINDS = ("module", "engine", "extractor", "tool", "agent", "pipeline")


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
    """Say whether FILE is a sound manifest, and what is wrong with it where it is not."""
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
def access(file: str, kind: str | None, phase: str | None) -> None:
    """Print what FILE declares as the value of DEMOCRAI_ACCESS."""
    subject = kind or guess_kind(read_document(file))
    declared = load_manifest(file, subject, phase).access
    click.echo(json.dumps(dump_access(declared)))


def guess_kind(document: object) -> str:
    """Return the kind of a manifest by its shape: phases are an engine's or an extractor's."""
    return "engine" if isinstance(document, dict) and set(PHASES) & set(document) else "module"


def _say_check(
    file: str, problems: tuple[str, ...], warnings: tuple[str, ...], manifests: list[Manifest]
) -> None:
    for problem in problems:
        say(f"{file}: error: {problem}")
    for warning in warnings:
        say(f"{file}: warning: {warning}")
    if problems:
        say(f"{file}: {len(problems)} problem(s); this manifest would not be loaded")
        return
    for each in manifests:
        phase = "" if each.phase is None else f" in {each.phase}"
        say(f"{file}: sound; {len(each.access)} rule(s){phase}")
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
