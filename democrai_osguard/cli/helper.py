"""`democrai-osguard helper`: what the root daemon says of itself and of this user's sandboxes."""

from __future__ import annotations

import grp
import os

import click

from democrai_osguard.cli.exits import Exit
from democrai_osguard.cli.output import counted, say, say_fields, say_json
from democrai_osguard.enforcement.host import HELPER_PATIENCE, decisions_words
from democrai_osguard.settings import load_settings
from democrai_osguard_helper.client import Client, HelperRefused, HelperSilent, HelperUnavailable
from democrai_osguard_helper.protocol import Listing, ProtocolViolation, Report, socket_path

_GROUP = "democrai-osguard"  # as the installation makes it


@click.group()
def helper() -> None:
    """Ask the helper, the root daemon that holds egress by address."""


@helper.command()
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def status(*, as_json: bool) -> int:
    """Say which layers hold, and which sandboxes of yours are alive.

    Exits with 125 if the helper cannot be asked or no layer works.
    """
    place = load_settings().helper_socket or socket_path()
    try:
        with Client(place, HELPER_PATIENCE) as client:
            report, sandboxes = client.status(), client.list().sandboxes
    except (HelperUnavailable, HelperRefused, ProtocolViolation) as error:
        if as_json:
            say_json({"reachable": False, "socket": place, "reason": str(error)})
        else:
            _say_why_not(error, place)
        return Exit.NOT_ENFORCED
    if as_json:
        say_json(_document(report, sandboxes, place))
    else:
        _say(report, sandboxes, place)
    works = any(not layer.reason for layer in report.layers)
    return Exit.ALLOWED if works else Exit.NOT_ENFORCED


def _say_why_not(error: Exception, place: str) -> None:
    reason = str(error).removeprefix(f"{place}: ")
    if isinstance(error, HelperSilent):
        say(f"The socket is there at {place}, and nobody answers: {reason}")
        say("  → look: systemctl status democrai-osguard-helper.service")
        return
    if isinstance(error.__cause__, PermissionError):
        say(f"You may not ask the helper at {place}: {reason}")
        say(f"  → {_how_to_be_let_in(place)}")
        return
    say(f"The helper does not answer at {place}: {reason}")
    say("  → start it: systemctl start democrai-osguard-helper.socket")


def _how_to_be_let_in(path: str) -> str:
    try:
        group = grp.getgrgid(os.stat(path).st_gid).gr_name
    except (OSError, KeyError):
        group = _GROUP
    if group == "root":
        return "root alone may ask it: it was started without --group"
    return f"join its group and log in again: sudo usermod --append --groups {group} <you>"


def _say(report: Report, sandboxes: tuple[Listing, ...], place: str) -> None:
    say(f"The helper answers at {place}.")
    say_fields(
        (
            *((layer.layer, _layer_words(layer.reason)) for layer in report.layers),
            ("peers", f"known by {report.peer_identity}"),
            ("names", report.resolver),
            ("repairs", str(report.repairs)),
            ("decisions", decisions_words(report.listeners)),
            ("sandboxes", f"{report.sandboxes} on this host, {len(sandboxes)} to be shown to you"),
        )
    )
    for each in sandboxes:
        subject = f"{each.subject.type}:{each.subject.name}"
        held = ", ".join(each.layers)
        places, names = counted(each.endpoints, "place"), counted(len(each.names), "name")
        open_to = f"{places}, {names}, {each.refusals} refused"
        say(f"  {each.sandbox}  {subject}  {each.state} by {held}  {open_to}")
        for line in each.failed_names:
            say(f"    stays closed: {line}")
        for name in each.names:
            if name.startswith("*."):
                say(f"    {name} opens name servers only: approve each name below it by itself")


def _layer_words(reason: str) -> str:
    if not reason or reason.endswith("switched off by the operator"):
        return reason or "works"
    return f"{reason}; the helper tries it again by itself"


def _document(report: Report, sandboxes: tuple[Listing, ...], place: str) -> dict[str, object]:
    return {
        "reachable": True,
        "socket": place,
        "layers": {layer.layer: layer.reason or None for layer in report.layers},
        "peer_identity": report.peer_identity,
        "resolver": report.resolver,
        "repairs": report.repairs,
        "followed": report.listeners > 0,
        "sandboxes": [
            {
                "sandbox": each.sandbox,
                "subject": f"{each.subject.type}:{each.subject.name}",
                "since": each.since,
                "refusals": each.refusals,
                "state": each.state,
                "layers": list(each.layers),
                "endpoints": each.endpoints,
                "names": list(each.names),
                "failed_names": list(each.failed_names),
                "populated": each.populated,
            }
            for each in sandboxes
        ],
    }
