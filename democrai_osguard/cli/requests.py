"""`democrai-osguard requests`: what code asks for, shown, watched and decided."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from democrai_osguard.approvals.errors import NotWidenable, UnknownRequest
from democrai_osguard.approvals.records import resource
from democrai_osguard.approvals.widening import widened
from democrai_osguard.cli.approvals import (
    json_option,
    local_operator,
    opened,
    say_table,
    store_option,
)
from democrai_osguard.cli.exits import Exit
from democrai_osguard.cli.output import printable, say, say_fields, say_json
from democrai_osguard.ui.live_screen import run
from democrai_osguard.ui.wording import ago, no_session, sentence, shortened

if TYPE_CHECKING:
    from democrai_osguard.approvals.records import Outcome, PendingRequest
    from democrai_osguard.approvals.service import ApprovalService

_TARGET_WIDTH = 60
_SHORTEST_ID = 4
_TITLES = (
    "ID", "SUBJECT", "WHAT", "TARGET", "CHAIN", "SESSION", "RESUMES", "ASKED", "LAST", "STATE",
)  # fmt: skip


@click.group()
def requests() -> None:
    """See what code asks for, and decide."""


@requests.command("list")
@click.option("--all", "everything", is_flag=True, help="Also what was decided or has expired.")
@store_option
@json_option
def list_(store: str | None, *, everything: bool, as_json: bool) -> None:
    """Show the open requests."""
    found = opened(store).list_requests(pending=not everything)
    if as_json:
        say_json([request.document() for request in found])
        return
    if not found:
        say("no request is open" if not everything else "no request is kept")
        return
    say_table(_TITLES, [_cells(request) for request in found])


@requests.command()
@click.argument("request_id", metavar="ID")
@store_option
@json_option
def show(request_id: str, store: str | None, *, as_json: bool) -> None:
    """Show one request, and the rule that approving it would store."""
    service = opened(store)
    request = service.get(_full_id(service, request_id))
    if as_json:
        say_json(request.document() | {"wider": _wider_document(request)})
    else:
        _say_request(request)


@requests.command()
@click.argument("request_id", metavar="ID")
@click.option(
    "--scope",
    type=click.Choice(["session", "permanent", "once"]),
    default="session",
    show_default=True,
    help="For its session, for good, or for one call that waits.",
)
@click.option("--widen", is_flag=True, help="Approve the whole folder or origin instead.")
@click.option("--overrule", is_flag=True, help="Replace an earlier decision about this request.")
@click.option("--dry-run", is_flag=True, help="Say what would be stored, and store nothing.")
@store_option
@json_option
def approve(  # noqa: PLR0913 - one parameter for each word of the command line
    request_id: str,
    scope: str,
    store: str | None,
    *,
    widen: bool,
    overrule: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Approve a request. Exits with 1 if somebody decided otherwise before."""
    service = opened(store)
    request = service.get(_full_id(service, request_id))
    if scope == "once" and widen:
        raise click.UsageError("a call that waits is let through as it is; --widen needs a scope")
    if dry_run:
        _say_dry_run(request, scope, widen=widen, as_json=as_json)
        return Exit.ALLOWED
    if scope == "once":
        outcome = service.approve_once(request.id, local_operator())
    else:
        outcome = service.decide(
            request.id, scope, local_operator(), widen=widen, overrule=overrule
        )
    return _say_outcome(outcome, as_json=as_json)


@requests.command()
@click.argument("request_id", metavar="ID")
@click.option("--overrule", is_flag=True, help="Replace an earlier decision about this request.")
@store_option
@json_option
def deny(request_id: str, store: str | None, *, overrule: bool, as_json: bool) -> int:
    """Deny a request. Exits with 1 if somebody decided otherwise before."""
    service = opened(store)
    found = _full_id(service, request_id)
    outcome = service.deny(found, local_operator(), overrule=overrule)
    return _say_outcome(outcome, as_json=as_json)


@requests.command()
@store_option
@json_option
def watch(store: str | None, *, as_json: bool) -> None:
    """Show requests as they come; in a terminal, decide with keys."""
    service = opened(store)
    if not as_json and sys.stdin.isatty() and sys.stdout.isatty():
        run(service, local_operator(), printable)
        return
    for request in service.watch():
        if as_json:
            click.echo(json.dumps(request.document()))
        else:
            say(_line(request))
        sys.stdout.flush()


def _line(request: PendingRequest) -> str:
    """Return a request as one line, with all that every interface shows."""
    chain = " > ".join(map(str, request.chain))
    session = "yes" if request.has_session else "no"
    resumable = "yes" if request.resumable else "no"
    more = f"chain {chain}; session key {session}; resumable {resumable}"
    return f"{request.id}  {request.state}  {request.label}  {sentence(request)}  ({more})"


def _cells(request: PendingRequest) -> tuple[str, ...]:
    return (
        request.id,
        str(request.subject),
        request.label,
        shortened(printable(request.rule.target), _TARGET_WIDTH),
        " > ".join(map(str, request.chain)),
        "yes" if request.has_session else "no",
        "yes" if request.resumable else "no",
        str(request.count),
        f"{ago(request.last_seen)} ago",
        _state(request),
    )


def _state(request: PendingRequest) -> str:
    scope = f" ({request.scope})" if request.scope in {"session", "permanent"} else ""
    return f"{request.state}{scope}"


def _say_request(request: PendingRequest) -> None:
    say(sentence(request))
    decided = "" if request.decided_by is None else f"{_state(request)} by {request.decided_by}"
    origin = request.origin
    say_fields(
        (
            ("what", request.label),
            ("target", request.rule.target),
            ("subject", str(request.subject)),
            ("chain", " > ".join(map(str, request.chain))),
            ("user", "" if origin.user_id is None else str(origin.user_id)),
            ("organisation", "" if origin.organization_id is None else str(origin.organization_id)),
            ("task", "" if origin.task_id is None else str(origin.task_id)),
            ("session key", "yes" if request.has_session else f"no. {no_session(request)}"),
            ("resumable", "yes" if request.resumable else "no"),
            ("first asked", f"{ago(request.first_seen)} ago"),
            ("last asked", f"{ago(request.last_seen)} ago"),
            ("state", decided or str(request.state)),
            ("would store", str(request.rule)),
            ("--widen stores", _wider_words(request)),
        )
    )


def _wider_words(request: PendingRequest) -> str:
    wider = _wider_document(request)
    return "nothing wider" if wider is None else f"{wider['rule']} (opens {wider['opens']})"


def _wider_document(request: PendingRequest) -> dict[str, str] | None:
    try:
        wider = widened(request.rule)
    except NotWidenable:
        return None
    return {"rule": str(wider.rule), "opens": wider.opens}


def _say_dry_run(request: PendingRequest, scope: str, *, widen: bool, as_json: bool) -> None:
    wider = widened(request.rule) if widen else None
    rule = request.rule if wider is None else wider.rule
    opens = None if wider is None else wider.opens
    if as_json:
        would = {"subject": str(request.subject), "resource": resource(rule), "scope": scope}
        say_json({"applied": False, "would_store": would, "opens": opens})
        return
    say(f"would store: {request.subject} may {rule} ({scope})")
    if opens is not None:
        say(f"  this opens {opens}")
    say("nothing was stored")


def _say_outcome(outcome: Outcome, *, as_json: bool) -> int:
    if as_json:
        request = None if outcome.request is None else outcome.request.document()
        say_json(
            {
                "applied": outcome.applied,
                "agrees": outcome.agrees,
                "words": outcome.words,
                "request": request,
                "settled": list(outcome.settled),
            }
        )
    else:
        _say_decided(outcome)
    return Exit.ALLOWED if outcome.applied or outcome.agrees else Exit.DENIED


def _say_decided(outcome: Outcome) -> None:
    """Say what holds now, what it opens, and how it is taken back."""
    entry, request = outcome.decision, outcome.request
    if not outcome.applied or entry is None:
        say(outcome.words)
        return
    may = "may not" if entry.act == "deny" else "may"
    scope = "" if entry.act == "deny" else f" ({entry.scope or 'once'})"
    say(f"done: {entry.subject} {may} {entry.rule}{scope}")
    if request is not None and entry.rule != request.rule:
        say(f"  this opens {widened(request.rule).opens}")
    if outcome.settled:
        say(f"  it also answers {', '.join(outcome.settled)}")
    if entry.scope is not None:
        say(f"  to take it back: democrai-osguard approvals revoke {entry.id}")


def _full_id(service: ApprovalService, start: str) -> str:
    """Return the id that starts so; raise UnknownRequest unless it is exactly one."""
    try:
        return service.get(start).id
    except UnknownRequest:
        pass
    every = (*service.list_requests(), *service.list_requests(pending=False))
    found = {each.id for each in every if each.id.startswith(start)}
    if found and len(start) < _SHORTEST_ID:
        short = f"{start!a} is too short"
        raise UnknownRequest(f"{short}: an id is named by {_SHORTEST_ID} characters or more")
    if len(found) != 1:
        many = f"{len(found)} requests start" if found else "no request starts"
        raise UnknownRequest(f"{many} with {start!a}")
    return found.pop()
