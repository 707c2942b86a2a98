"""`democrai-osguard why`: what a traced run was refused, and what would allow it."""

from __future__ import annotations

from itertools import chain

import click

from democrai_osguard.cli.exits import Exit
from democrai_osguard.cli.output import say, say_json
from democrai_osguard.learning.sentences import sentences
from democrai_osguard.learning.sightings import Sightings, read_sightings
from democrai_osguard.learning.telling import in_order


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def why(file: str, *, as_json: bool) -> int:
    """Tell what a command was refused, and what would allow it.

    The network comes first, then what the command was asked for or a rule nearly covers; what most
    programs do without comes last.

    FILE is a trace of `democrai-launch --trace`. Exits with 1 if something was refused.
    """
    run = read_sightings(file)
    if as_json:
        say_json(_report(run))
    else:
        for line in sentences(run):
            say(line)
    return Exit.DENIED if run.seen else Exit.ALLOWED


def _report(run: Sightings) -> dict[str, object]:
    return {
        "command": list(run.command),
        "mode": run.mode,
        "complete": run.complete,
        "refused": [
            {
                "missing": None
                if sighting.lack is None
                else {
                    "resource_type": str(sighting.lack.resource_type),
                    "operation": str(sighting.lack.operation),
                    "target": sighting.lack.target,
                },
                "call": sighting.call,
                "count": sighting.count,
                "programs": dict(sighting.programs),
            }
            for sighting in chain(*in_order(run))
        ],
    }
