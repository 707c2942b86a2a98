"""`democrai-osguard status`: what this host can enforce, which settings hold, what runs."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import click

from democrai_osguard.cli.output import counted, say, say_json
from democrai_osguard.enforcement.host import Fact, host_facts
from democrai_osguard.settings import InForce, in_force
from democrai_osguard.ui.sandboxes import HELPER, ITSELF, KERNEL, Sandbox, running

if TYPE_CHECKING:
    from collections.abc import Callable

_WORD = {
    HELPER: "by the helper's word",
    KERNEL: "confined by the kernel's word",
    ITSELF: "by its own word",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def status(*, as_json: bool) -> None:
    """Say what this host can enforce, what is set and what runs.

    Exits with 64, and one line for each place, if the settings are not understood.
    """
    found = in_force()  # first: what is wrong with them is said at once
    helper = found.settings.helper_socket
    runs = running_fact(partial(running, helper))
    facts = (*host_facts(helper), settings_fact(found), runs)
    if as_json:
        say_json({fact.name: fact.value for fact in facts})
        return
    for fact in facts:
        say(fact.words)
        if fact.follows:
            say(f"  → {fact.follows}")


def settings_fact(found: InForce) -> Fact:
    """Return which settings hold: who says so, and what differs from the defaults. Pure."""
    changed = found.settings.changed()
    sources = " and ".join(filter(None, (found.file, *found.variables)))
    differs = ", ".join(f"{place} = {json.dumps(value)}" for place, value in changed.items())
    value = {"file": found.file, "variables": list(found.variables), "changed": changed}
    words = f"settings: {sources or 'no file and no variable'}: {differs or 'all defaults'}"
    return Fact("settings", value, words, "")


def running_fact(look: Callable[[], list[Sandbox]] = running) -> Fact:
    """Return which sandboxes run now, as far as this host tells."""
    unknown = "the helper and /proc are asked, and show what runs as the same user"
    try:
        found = look()
    except OSError as error:
        return Fact("running", None, f"running: cannot be told ({error.strerror})", unknown)
    if not found:
        return Fact("running", [], "running: no sandbox that this user can see", unknown)
    each = "; ".join(f"{one.subject} ({_known(one)}): {one.command}" for one in found)
    documents = [one.document() for one in found]
    count = counted(len(found), "sandbox", "sandboxes")
    return Fact("running", documents, f"running: {count}", each)


def _known(sandbox: Sandbox) -> str:
    return f"process {sandbox.pid}, {_WORD[sandbox.known_from]}"
