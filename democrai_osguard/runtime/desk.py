"""Who answers the guard: rules, profile, recorded decisions, and then the permission mode.

One pure function decides; this file only tells it what to decide about, and acts on the answer.
It runs outside of every guard, on plain values that the guard hands over.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from democrai_osguard.access import AccessRequest, Operation, ResourceType, Rule, Scope, Subject
from democrai_osguard.approvals.records import Origin, Resume
from democrai_osguard.errors import ContractError, OsGuardError, TargetError
from democrai_osguard.guard.installation import doors
from democrai_osguard.permissions.modes import Mode
from democrai_osguard.policy.chain import Chain
from democrai_osguard.policy.decide import Policy, decide
from democrai_osguard.policy.decision import Allow, Decision, Deny, RequiresApproval
from democrai_osguard.policy.profile import WRITES, Globs, Profile
from democrai_osguard.targets.request import access_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from democrai_osguard.approvals.service import ApprovalService
    from democrai_osguard.approvals.store import Store
    from democrai_osguard.permissions.settling import Settler

    Rules = tuple[tuple[str, str, str], ...]  # resource type, operation, target
    Inherited = tuple[Rules, Rules, tuple[str, ...]]
    # allowed, requires approval, code, message, the id of the pending request
    Answer = tuple[bool, bool, str, str, str | None]
    Failure = tuple[str, str, tuple[str, ...]]  # "failed", the error's code, its arguments

FAILED = "failed"
_log = logging.getLogger("democrai_osguard.runtime")
_PROTECTED = "it belongs to the guard itself"
_BYTECODE = "__pycache__"


class Desk:
    """Answers the guard's questions about acts, and explicit ones of guarded code."""

    def __init__(
        self,
        service: ApprovalService,
        profiles: Mapping[Subject, Profile] | None = None,
        settler: Settler | None = None,
    ) -> None:
        self.service = service
        self._verdicts = service.verdicts()
        self._profiles = dict(profiles or {})
        self._settler = settler
        self._combined: dict[tuple[str, ...], Profile] = {}
        self._denied: tuple[int, dict[Subject, Rules]] = (-1, {})
        self._latest: object = None  # the activation that asked last

    def __call__(
        self,
        token: object,
        resource: str,
        operation: str,
        target: str,
        declared: bool,  # noqa: FBT001 - as the guard passes it
    ) -> bool | str:
        """Return True where the act is allowed, else why not."""
        if token is not self._latest:  # an activation begins with what is decided by then
            self._latest = token
            self.service.notice()
        who = Actor(doors["info_by_token"](token))
        request = who.request(resource, operation, target)
        rules = (request.rule,) if declared else ()
        decision = self._decide(request, who, rules)
        if isinstance(decision, RequiresApproval):
            return self._without_a_rule(decision, who)
        return True if isinstance(decision, Allow) else decision.reason

    def check(  # noqa: PLR0913, PLR0917 - what is asked, as plain values
        self,
        info: tuple[Any, ...],
        resource: str,
        operation: str,
        text: str,
        register: bool,  # noqa: FBT001 - as the guard passes it
        action: str | None,
        context: str | None,
    ) -> Answer | Failure:
        """Answer an explicit question; with `register`, ask a person where nothing allows it."""
        self.service.notice()  # who asks in so many words is told what is decided now
        who = Actor(info)
        try:
            request = access_request(
                who.subject, resource, operation, text, session_key=who.session_key
            )
            decision = self._decide(request, who, who.rules)
            if not isinstance(decision, RequiresApproval):
                return _answer(decision)
            if self._settler is not None and self._mode is Mode.BYPASS:
                return _answer(self._settler.settle(decision, who))  # which is recorded
            answered = self._remembered(request)
            if answered is not None:
                return _answer(answered)
            path = " > ".join(who.chain)
            self.service.refused(request, decision.code, f"no rule of {path} covers it")
            asked = self._ask_a_person(request, who, action, context) if register else None
            return _answer(decision, asked)
        except TargetError as error:
            return FAILED, error.code, (str(error.value), error.reason)
        except (ContractError, OsGuardError) as error:
            if isinstance(error, RuntimeError):
                _log.error("%s: %s %s %s", error, who.subject, operation, text)
            return FAILED, error.code, (str(error).removeprefix(f"{error.code}: "),)

    def for_child(self, info: tuple[Any, ...], rules: Rules) -> Inherited:
        """Return a child's rules without what is denied, what is closed beneath, and open globs.

        Only rules go down to a child, and no rule takes away: what a person or a profile closes
        beneath one is named, for whoever can leave it out. Globs that name no single path are not
        held below Python, and are returned to be told.
        """
        who = Actor(info)
        profile, denials = self._profile(who.chain), self._denials(who.subject.identity)
        if not profile.speaks and not denials:
            return rules, (), ()
        left = tuple(rule for rule in rules if self._may(who, rule))
        closed = dict.fromkeys((*denials, *_closed_places(profile)))
        beneath = tuple(rule for rule in closed if not self._may(who, rule))
        return left, beneath, (*profile.deny_read.anywhere, *profile.deny_write.anywhere)

    def _may(self, who: Actor, rule: tuple[str, str, str]) -> bool:
        """Tell whether an act is allowed that a rule declares."""
        request = who.request(*rule)
        return isinstance(self._decide(request, who, (request.rule,)), Allow)

    def _denials(self, subject: Subject) -> Rules:
        """Return what was denied to a subject, looked up when decisions have changed."""
        store = self.service.store
        generation = store.generation()
        if self._denied[0] != generation:
            self._denied = generation, _denied(store)
        return self._denied[1].get(subject, ())

    @property
    def _mode(self) -> Mode | None:
        return None if self._settler is None else self._settler.permissions.mode

    def _remembered(self, request: AccessRequest) -> Allow | Deny | None:
        """Return what somebody said already when the same was done."""
        return None if self._settler is None else self._settler.permissions.remembered(request)

    def _decide(self, request: AccessRequest, who: Actor, rules: Iterable[Rule]) -> Decision:
        if _is_file(request) and doors["is_protected"](request.target, str(request.operation)):
            return Deny(request, _PROTECTED)
        chain = Chain.of(request.subject, rules)
        return decide(request, Policy(chain, self._profile(who.chain), self._verdicts))

    def _without_a_rule(self, decision: RequiresApproval, who: Actor) -> bool | str:
        request = decision.request
        if _is_bytecode(request):
            return False
        if self._settler is not None:
            settled = self._settler.settle(decision, who)
            return True if isinstance(settled, Allow) else settled.reason
        if _is_noted(request):
            self._ask_a_person(request, who, None, None)
        return False

    def _ask_a_person(
        self, request: AccessRequest, who: Actor, action: str | None, context: str | None
    ) -> str:
        resume = None if action is None else Resume(action, json.loads(context or "{}"))
        return self.service.register(request, who.origin, chain=who.subjects, resume=resume).id

    def _profile(self, chain: tuple[str, ...]) -> Profile:
        """Return what the profiles of all subjects of a chain ask for together."""
        known = self._combined.get(chain)
        if known is None:
            subjects = tuple(map(Subject.parse, chain))
            # A task is held to its module's profile, too.
            names = dict.fromkeys(name for each in subjects for name in (each, each.identity))
            found = [self._profiles[name] for name in names if name in self._profiles]
            known = self._combined[chain] = _together(found)
        return known


class Actor:
    """Who acts, from the plain values of the guard's state."""

    __slots__ = ("chain", "origin", "rules", "session_key", "subject")

    def __init__(self, info: tuple[Any, ...]) -> None:
        kind, name, chain, _, flat, identity, *_ = info
        self.subject = Subject(kind, name)
        self.chain: tuple[str, ...] = chain
        self.rules = tuple(Rule(*rule) for rule in flat)
        user, organization, self.session_key, task = identity
        self.origin = Origin(user, organization, self.session_key, task)

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """The subjects of the chain, outermost first."""
        return tuple(map(Subject.parse, self.chain))

    def request(self, resource: str, operation: str, target: str) -> AccessRequest:
        """Return what this actor asks for, in the session that it acts in."""
        what = ResourceType(resource), Operation(operation)
        return AccessRequest(self.subject, *what, target, session_key=self.session_key)


def _is_file(request: AccessRequest) -> bool:
    return request.resource_type is ResourceType.FILESYSTEM


def _is_bytecode(request: AccessRequest) -> bool:
    """Tell whether Python wants to keep what it compiled: nobody is asked about a cache."""
    folder, _, name = request.target.rpartition("/")
    in_cache = name == _BYTECODE or folder.endswith(f"/{_BYTECODE}")
    return _is_file(request) and request.operation is not Operation.READ and in_cache


def _is_noted(request: AccessRequest) -> bool:
    """Tell whether a refused act is a question by itself: probes of files are none."""
    return not _is_file(request) or request.operation is Operation.EXECUTE


def _answer(decision: Decision, asked: str | None = None) -> Answer:
    waits = isinstance(decision, RequiresApproval)
    words = decision.reason
    if not isinstance(decision, Allow):
        words = f"{words}. {decision.hint}"
    return isinstance(decision, Allow), waits, decision.code, words, asked


def _denied(store: Store) -> dict[Subject, Rules]:
    found: dict[Subject, Rules] = {}
    last = 0
    while some := store.standing(after=last):
        last = some[-1].id
        for each in some:
            if each.scope is Scope.DENIED:
                rule = each.rule
                plain = (str(rule.resource_type), str(rule.operation), rule.target)
                found[each.subject] = (*found.get(each.subject, ()), plain)
    return found


def _closed_places(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """Yield what the globs of a profile close, as far as they name single paths."""
    files = str(ResourceType.FILESYSTEM)
    for place in profile.deny_read.places:
        yield files, str(Operation.READ), place
    for place in profile.deny_write.places:
        yield from ((files, str(operation), place) for operation in sorted(WRITES))


def _together(profiles: list[Profile]) -> Profile:
    reads = (pattern for each in profiles for pattern in each.deny_read.patterns)
    writes = (pattern for each in profiles for pattern in each.deny_write.patterns)
    return Profile(
        any(each.read_only for each in profiles), Globs(tuple(reads)), Globs(tuple(writes))
    )
