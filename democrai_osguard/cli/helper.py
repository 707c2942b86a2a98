"""`democrai-osguard helper`: what the root daemon says of itself and of this user's sandboxes."""

from __future__ import annotations

import click

from democrai_osguard.cli.exits import Exit
from democrai_osguard.cli.output import say, say_fields, say_json
from democrai_osguard_helper.client import Client, HelperRefused, HelperUnavailable
from democrai_osguard_helper.protocol import Listing, ProtocolViolation, Report, socket_path


@click.group()
def helper() -> None:
    """Ask the helper, the root daemon that holds egress by address."""


@helper.command()
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def status(*, as_json: bool) -> int:
    """Say which layers hold on this host, and which sandboxes of yours are alive.

    Exits with 125 if the helper cannot be asked or no layer works.
    """
    try:
        with Client() as client:
            report, sandboxes = client.status(), client.list().sandboxes
    except (HelperUnavailable, HelperRefused, ProtocolViolation) as error:
        if as_json:
            say_json({"reachable": False, "socket": socket_path(), "reason": str(error)})
        else:
            say(f"The helper does not answer at {socket_path()}: {error}")
            say("  → start it: systemctl start democrai-osguard-helper.socket")
        return Exit.NOT_ENFORCED
    if as_json:
        say_json(_document(report, sandboxes))
    else:
        _say(report, sandboxes)
    works = any(not layer.reason for layer in report.layers)
    return Exit.ALLOWED if works else Exit.NOT_ENFORCED


def _say(report: Report, sandboxes: tuple[Listing, ...]) -> None:
    say(f"The helper answers at {socket_path()}.")
    say_fields(
        (
            *((layer.layer, layer.reason or "works") for layer in report.layers),
            ("peers", f"known by {report.peer_identity}"),
            ("names", report.resolver),
            ("repairs", str(report.repairs)),
            ("sandboxes", f"{report.sandboxes} on this host, {len(sandboxes)} to be shown to you"),
        )
    )
    for each in sandboxes:
        subject = f"{each.subject.type}:{each.subject.name}"
        held = ", ".join(each.layers)
        places = f"{each.endpoints} place(s), {len(each.names)} name(s), {each.refusals} refused"
        say(f"  {each.sandbox}  {subject}  {each.state} by {held}  {places}")
        for name in each.names:
            if name.startswith("*."):
                say(f"    {name} opens name servers only: approve each name below it by itself")


def _document(report: Report, sandboxes: tuple[Listing, ...]) -> dict[str, object]:
    return {
        "reachable": True,
        "socket": socket_path(),
        "layers": {layer.layer: layer.reason or None for layer in report.layers},
        "peer_identity": report.peer_identity,
        "resolver": report.resolver,
        "repairs": report.repairs,
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
                "populated": each.populated,
            }
            for each in sandboxes
        ],
    }
