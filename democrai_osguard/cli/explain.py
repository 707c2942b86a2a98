"""`democrai-osguard explain`: what would be decided about an act and why, or who may do what."""

from __future__ import annotations

import os
from itertools import zip_longest
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from democrai_osguard.access import AccessRequest, Operation, ResourceType, Scope, Subject
from democrai_osguard.approvals.opening import default_store_url
from democrai_osguard.cli.approvals import opened, store_option
from democrai_osguard.cli.exits import Exit
from democrai_osguard.cli.manifest import added_rules
from democrai_osguard.cli.output import say, say_fields, say_json
from democrai_osguard.cli.rights import (
    about,
    decided_rights,
    declared_rights,
    running_rights,
    say_rights,
)
from democrai_osguard.manifest import dump_access, load_manifest
from democrai_osguard.manifest_shape import PHASES
from democrai_osguard.policy.chain import Chain
from democrai_osguard.policy.decide import Policy, decide
from democrai_osguard.policy.decision import Allow, Decision, Deny, RequiresApproval
from democrai_osguard.policy.ledger import Ledger
from democrai_osguard.targets.request import access_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from democrai_osguard.approvals.service import ApprovalService

_ANSWERS: dict[type[Decision], tuple[str, str, Exit]] = {
    Allow: ("allow", "allowed", Exit.ALLOWED),
    Deny: ("deny", "denied", Exit.DENIED),
    RequiresApproval: ("requires_approval", "requires approval", Exit.REQUIRES_APPROVAL),
}


@click.command()
@click.option(
    "--manifest",
    "manifests",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="What the subject declares. Repeat both options for a chain, outermost first.",
)
@click.option("--subject", "subjects", multiple=True, metavar="KIND:NAME", help="Who acts.")
@click.option("--phase", type=click.Choice(PHASES), help="For engines and extractors.")
@click.option("--session", metavar="KEY", help="Count what was approved for this session, too.")
@store_option
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.argument(
    "resource",
    required=False,
    metavar="[RESOURCE]",
    type=click.Choice([str(one) for one in ResourceType]),
)
@click.argument("operation", required=False)  # which there are is a matter of the resource
@click.argument("target", required=False)
def explain(  # noqa: PLR0913 - one parameter for each word of the command line
    *,
    manifests: Sequence[str],
    subjects: Sequence[str],
    phase: str | None,
    session: str | None,
    store: str | None,
    as_json: bool,
    resource: str | None,
    operation: str | None,
    target: str | None,
) -> int:
    """Say whether an act is allowed, and by which rule or decision.

    RESOURCE is network, filesystem or system_dependency.

    Exits with 0 if it is allowed, 1 if it is denied, 2 if it requires approval.

    Without an act, say who may do what: what the manifests declare, what was decided, and what the
    processes that run were started with. A --subject leaves the others out.
    """
    chain = _chain(subjects, manifests, phase)
    if resource is None:
        _show_rights(chain, _service(store), session, as_json=as_json)
        return Exit.ALLOWED
    if operation is None or target is None:
        raise click.UsageError("an act is RESOURCE OPERATION TARGET, such as: network send a.com")
    if not subjects:
        raise click.UsageError("who acts? name it with --subject KIND:NAME")
    # A relative path here is one that a person typed: it starts where they are.
    request = access_request(
        chain.actor, resource, operation, target, session_key=session, base=os.getcwd()
    )
    service = _service(store)
    verdicts = Ledger() if service is None else service.verdicts()
    decision = decide(request, Policy(chain, verdicts=verdicts))
    hint = " ".join((getattr(decision, "hint", ""), *_way_back(decision, service)))
    if as_json:
        say_json(_document(request, chain, decision, hint))
    else:
        _say(request, chain, decision, hint)
    return _ANSWERS[type(decision)][2]


def _chain(subjects: Sequence[str], manifests: Sequence[str], phase: str | None) -> Chain:
    if len(manifests) > len(subjects):
        raise click.UsageError("each --manifest belongs to a --subject")
    chain = Chain()
    for text, file in zip_longest(subjects, manifests):
        subject = Subject.parse(text)
        declared = None if file is None else load_manifest(file, subject.type, phase).declared
        added = added_rules(subject.type, phase)
        chain = chain.enter(subject, (*(declared or ()), *added) if added else declared)
    return chain


def _show_rights(
    chain: Chain, service: ApprovalService | None, session: str | None, *, as_json: bool
) -> None:
    decisions = () if service is None else service.list_decisions()
    known = (*declared_rights(chain), *decided_rights(decisions, session), *running_rights())
    rights = about(known, chain.subjects)
    if as_json:
        say_json([right.document() for right in rights])
    else:
        say_rights(rights)


def _service(store: str | None) -> ApprovalService | None:
    """Return who keeps the decisions, None where there is no store: a question makes none."""
    url = urlsplit(store or default_store_url())
    path = unquote(url.path, errors="surrogateescape")
    is_file = url.scheme == "sqlite" and not url.netloc and path.startswith("/")
    return None if is_file and not os.path.exists(path) else opened(store)


def _way_back(decision: Decision, service: ApprovalService | None) -> Iterator[str]:
    """Yield how a recorded denial is taken back, by its number."""
    if service is None or not isinstance(decision, Deny) or decision.rule is None:
        return
    who = decision.request.subject.identity
    for each in service.list_decisions():
        if (each.scope, each.subject.identity, each.rule) == (Scope.DENIED, who, decision.rule):
            yield f"To take it back: democrai-osguard approvals revoke {each.id}"


def _say(request: AccessRequest, chain: Chain, decision: Decision, hint: str) -> None:
    act = f"{request.resource_type} {request.operation} {request.target}"
    say(f"{_ANSWERS[type(decision)][1]}: {act}")
    rule = getattr(decision, "rule", None)
    say_fields(
        (
            ("why", decision.reason),
            ("rule", "" if rule is None else str(rule)),
            ("chain", str(chain)),
            ("do", hint),
        )
    )


def _document(
    request: AccessRequest, chain: Chain, decision: Decision, hint: str
) -> dict[str, object]:
    rule = getattr(decision, "rule", None)
    return {
        "decision": _ANSWERS[type(decision)][0],
        "code": decision.code,
        "reason": decision.reason,
        "hint": hint,
        "rule": None if rule is None else dump_access([rule])[0],
        "subject": str(getattr(decision, "subject", request.subject)),
        "chain": [str(subject) for subject in chain.subjects],
        "request": {
            "resource_type": str(request.resource_type),
            "operation": str(Operation(request.operation)),
            "target": request.target,
        },
    }
