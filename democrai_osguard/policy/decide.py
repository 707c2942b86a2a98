"""The decision: one pure function, in the order of the contract. The first that speaks wins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from democrai_osguard.policy.decision import Allow, Decision, Deny, RequiresApproval
from democrai_osguard.policy.ledger import Ledger, Verdicts
from democrai_osguard.policy.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from democrai_osguard.access import AccessRequest
    from democrai_osguard.policy.chain import Chain, Link


@dataclass(frozen=True, slots=True)
class Policy:
    """All that a decision depends on beside the request."""

    chain: Chain
    profile: Profile = field(default_factory=Profile)
    verdicts: Verdicts = field(default_factory=Ledger)


def decide(request: AccessRequest, policy: Policy) -> Decision:
    """Return Allow, Deny or RequiresApproval for a request in normal form, and say why."""
    if request.unsafe is not None:
        return Deny(request, f"{request.target!a} cannot be resolved safely: {request.unsafe}")
    profile = policy.profile
    if profile.speaks and profile.forbids(request):
        return Deny(request, "the profile is read-only")
    denial = policy.verdicts.denial(request)
    if denial is not None:
        return Deny(request, f"an operator denied {denial}", denial)
    glob = profile.soft_denial(request) if profile.speaks else None
    if glob is not None:
        reason = f"the profile wants a person to look at what {glob!a} matches"
        return _approval(request, policy) or RequiresApproval(request, reason, declarable=False)
    grant = policy.chain.find(request.resource_type, request.operation, request.target)
    if grant is not None:
        return Allow("sandbox_allowed", grant.rule, grant.subject)
    return _approval(request, policy) or RequiresApproval(request, _missing(request, policy.chain))


def _approval(request: AccessRequest, policy: Policy) -> Allow | None:
    rule = policy.verdicts.session_approval(request)
    if rule is not None:
        return Allow("session_approval", rule, request.subject)
    rule = policy.verdicts.permanent_approval(request)
    return None if rule is None else Allow("permanent_approval", rule, request.subject)


def _missing(request: AccessRequest, chain: Chain) -> str:
    """Say what is missing, and where a chain narrowed away what somebody declared."""
    what = f"{request.resource_type} {request.operation} {request.target}"
    asked = (request.resource_type, request.operation, request.target)
    declared = [link for link in chain.links if link.find(*asked) is not None]
    if not declared:
        return f"no rule of {chain} covers {what}"
    silent = [link for link in chain.links if link.has_a_say and link not in declared]
    return f"{_names(declared)} declares {what}, {_names(silent)} does not"


def _names(links: Sequence[Link]) -> str:
    return " and ".join(str(link.subject) for link in links) or "what is outside"
