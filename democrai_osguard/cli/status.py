"""`democrai-osguard status`: what this kernel and host can enforce and what runs, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from democrai_osguard.cli.output import counted, say, say_json
from democrai_osguard.enforcement.host import Fact, host_facts
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
    """Say what this host can enforce, and what is running."""
    facts = (*host_facts(), running_fact())
    if as_json:
        say_json({fact.name: fact.value for fact in facts})
        return
    for fact in facts:
        say(fact.words)
        if fact.follows:
            say(f"  → {fact.follows}")


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
