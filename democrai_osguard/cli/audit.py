"""`democrai-osguard audit`: whether the log of decisions is what was written."""

from __future__ import annotations

import click

from democrai_osguard.approvals.opening import audit_folder
from democrai_osguard.audit import verify as walk
from democrai_osguard.cli.exits import Exit
from democrai_osguard.cli.output import counted, say, say_json


@click.group()
def audit() -> None:
    """Check the log of decisions, refusals and bypasses."""


@audit.command()
@click.option(
    "--folder", type=click.Path(file_okay=False), help="Another log than the state folder's."
)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def verify(folder: str | None, *, as_json: bool) -> int:
    """Find records that were changed, lost or moved. Exits with 1 if there are any."""
    place = folder or audit_folder()
    report = walk(place)
    if as_json:
        flaws = [
            {"kind": flaw.kind, "where": flaw.where, "words": flaw.words} for flaw in report.flaws
        ]
        say_json(
            {
                "folder": place,
                "sound": report.sound,
                "records": report.records,
                "first": report.first,
                "last": report.last,
                "kept": report.kept,
                "flaws": flaws,
            }
        )
    else:
        for flaw in report.flaws:
            say(f"{flaw.kind}: {flaw.words} ({flaw.where})")
        numbers = "" if report.first is None else f", {report.first} to {report.last}"
        kept = f", {report.kept} kept of earlier files" if report.kept else ""
        state = "sound" if report.sound else counted(len(report.flaws), "flaw")
        say(f"{place}: {state}; {counted(report.records, 'record')}{numbers}{kept}")
    return Exit.ALLOWED if report.sound else Exit.DENIED
