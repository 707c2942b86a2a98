"""`democrai-osguard status`: what this kernel and host can enforce, in words."""

from __future__ import annotations

import click

from democrai_osguard.cli.output import say, say_json
from democrai_osguard.enforcement.host import host_facts


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def status(*, as_json: bool) -> None:
    """Say what this kernel and host can enforce, and what follows from it."""
    facts = host_facts()
    if as_json:
        say_json({fact.name: fact.value for fact in facts})
        return
    for fact in facts:
        say(fact.words)
        if fact.follows:
            say(f"  → {fact.follows}")
