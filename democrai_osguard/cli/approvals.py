"""`democrai-osguard approvals`: what stands, taken back, and the keys behind it."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

import click

from democrai_osguard.approvals.opening import open_service
from democrai_osguard.approvals.records import Operator, label, session_label
from democrai_osguard.approvals.resuming import rotate_keys as rotate
from democrai_osguard.cli.output import counted, printable, say, say_json
from democrai_osguard.ui.wording import ago, shortened, wants

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from democrai_osguard.approvals.service import ApprovalService

    Command = TypeVar("Command", bound=Callable[..., object])

_TARGET_WIDTH = 60


def store_option(command: Command) -> Command:
    """Add the option that names another store than the state folder's."""
    add = click.option(
        "--store",
        envvar="DEMOCRAI_APPROVALS_STORE",
        metavar="URL",
        help="sqlite:///path or postgresql://…; else the store in the state folder.",
    )
    return add(command)


def json_option(command: Command) -> Command:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="For machines.")(command)


def opened(store: str | None) -> ApprovalService:
    """Return the service; it is closed when the command ends."""
    service = open_service(store)
    click.get_current_context().call_on_close(service.close)
    return service


def local_operator() -> Operator:
    """Return whoever runs this: who may write the store may decide."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return Operator(name, super_role=True)


def say_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under titles, each column as wide as it needs."""
    table = [list(titles), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in table) for place in range(len(titles))]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())


@click.group()
def approvals() -> None:
    """See and take back what was decided."""


@approvals.command("list")
@store_option
@json_option
def list_(store: str | None, *, as_json: bool) -> None:
    """Show every decision that stands."""
    standing = opened(store).list_decisions()
    if as_json:
        say_json([each.document() for each in standing])
        return
    if not standing:
        say("nothing was decided")
        return
    rows = [
        (
            str(each.id),
            str(each.scope),
            session_label(each.session_key) or "",
            str(each.subject),
            label(each.rule),
            shortened(printable(each.rule.target), _TARGET_WIDTH),
            each.decided_by,
            f"{ago(each.decided_at)} ago",
        )
        for each in standing
    ]
    titles = ("NUMBER", "SCOPE", "SESSION", "SUBJECT", "WHAT", "TARGET", "BY", "WHEN")
    say_table(titles, rows)


@approvals.command()
@click.argument("number", type=int)
@store_option
@json_option
def revoke(number: int, store: str | None, *, as_json: bool) -> None:
    """End the decision with this NUMBER, an approval or a denial."""
    entry = opened(store).revoke(number, local_operator())
    if as_json:
        say_json(entry.document())
    else:
        say(f"revoked ({entry.scope}): {entry.subject} to {wants(entry.rule)}")


@approvals.command("rotate-keys")
@click.option("--drop-old", is_flag=True, help="Forget the old keys once nothing needs them.")
@store_option
@json_option
def rotate_keys(store: str | None, *, drop_old: bool, as_json: bool) -> None:
    """Seal every stored resume context with a fresh key."""
    count = rotate(opened(store), drop_old=drop_old)
    if as_json:
        say_json({"sealed": count})
        return
    say(f"a fresh key seals; {counted(count, 'stored context')} sealed anew")
