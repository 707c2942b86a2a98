"""One request and everything that can speak about it, for the tests of the order of decisions."""

from __future__ import annotations

from dataclasses import replace

from democrai_osguard import Policy, Rule, Subject
from democrai_osguard.access import AccessRequest, Operation, ResourceType, Scope
from democrai_osguard.policy.chain import Chain
from democrai_osguard.policy.ledger import Ledger
from democrai_osguard.policy.profile import Profile

MODULE = Subject.parse("module:reports")
SESSION = "session-1"
RULE = Rule(ResourceType.FILESYSTEM, Operation.MODIFY, "/srv/none/x")
REQUEST = AccessRequest(MODULE, RULE.resource_type, RULE.operation, RULE.target, SESSION)
READ = AccessRequest(MODULE, ResourceType.FILESYSTEM, Operation.READ, "/srv/none/x", SESSION)
GET = AccessRequest(
    MODULE, ResourceType.NETWORK, Operation.RECEIVE, "https://example.com/v1", SESSION
)


def ledger(request: AccessRequest, *scopes: Scope) -> Ledger:
    """Return a ledger of these decisions about the request, in this order."""
    book = Ledger()
    for scope in scopes:
        book = book.record(request.identity(scope))
    return book


def both(one: Ledger, other: Ledger) -> Ledger:
    """Return a ledger with the decisions of both, in order."""
    return Ledger((*one.decisions, *other.decisions))


def declared(request: AccessRequest) -> Chain:
    """Return a chain whose manifest allows the request."""
    return Chain.of(request.subject, [request.rule])


def silent(request: AccessRequest) -> Chain:
    """Return a chain that allows nothing."""
    return Chain.of(request.subject, [])


def policy_for(request: AccessRequest, voices: frozenset[str]) -> tuple[AccessRequest, Policy]:
    """Return the request and a policy in which exactly these voices speak.

    `denied` is written about the parent folder, so that no approval of the request lifts it.
    """
    if "unsafe" in voices:
        request = replace(request, unsafe="a loop of symbolic links")
    glob = (request.target,) if "glob" in voices else ()
    profile = Profile.of(
        read_only="read_only" in voices,
        deny_write=glob,
        deny_read=glob,
    )
    book = Ledger()
    if "session" in voices:
        book = both(book, ledger(request, Scope.SESSION))
    if "permanent" in voices:
        book = both(book, ledger(request, Scope.PERMANENT))
    if "denied" in voices:
        book = both(book, ledger(replace(request, target="/srv/none"), Scope.DENIED))
    chain = declared(request) if "rules" in voices else silent(request)
    return request, Policy(chain, profile, book)
