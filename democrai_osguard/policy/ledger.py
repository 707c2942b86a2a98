"""What people decided, as `decide` asks for it, and a small ledger of it in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from democrai_osguard.access import AccessRequest, Identity, Rule, Scope, Subject
from democrai_osguard.policy.ruleset import RuleSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Verdicts(Protocol):
    """Recorded decisions. Each answer is the rule that was recorded, or None."""

    def denial(self, request: AccessRequest) -> Rule | None:
        """Return the denial that stands in the way of the request."""

    def session_approval(self, request: AccessRequest) -> Rule | None:
        """Return the approval of the request's own session."""

    def permanent_approval(self, request: AccessRequest) -> Rule | None:
        """Return the approval that holds in every session."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Decisions in the order in which they were made. The newest about one thing stands.

    A denial ends every approval of the same thing, a permanent approval ends the denial. A session
    approval lifts a denial in its own session only: the others were never asked.
    """

    decisions: tuple[Identity, ...] = ()
    _rules: Mapping[_Holder, RuleSet] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rules", _compiled(self.decisions))

    def record(self, decision: Identity) -> Ledger:
        """Return the ledger with one more decision."""
        return Ledger((*self.decisions, decision))

    def denial(self, request: AccessRequest) -> Rule | None:
        """Return the denial that stands in the way of the request."""
        return self._find(Scope.DENIED, request, request.session_key, None)

    def session_approval(self, request: AccessRequest) -> Rule | None:
        """Return the approval of the request's own session."""
        if request.session_key is None:
            return None
        return self._find(Scope.SESSION, request, request.session_key)

    def permanent_approval(self, request: AccessRequest) -> Rule | None:
        """Return the approval that holds in every session."""
        return self._find(Scope.PERMANENT, request, None)

    def _find(self, scope: Scope, request: AccessRequest, *sessions: str | None) -> Rule | None:
        """Ask the first of these sessions that has rules of its own."""
        if not self._rules:
            return None
        for session in sessions:
            rules = self._rules.get((scope, request.subject.identity, session))
            if rules is not None:
                return rules.find(request.resource_type, request.operation, request.target)
        return None


_Holder = tuple[Scope, Subject, str | None]


@dataclass(slots=True)
class _Standing:
    """What stands about one thing after all decisions about it."""

    denied: bool = False
    permanent: bool = False
    sessions: set[str] = field(default_factory=set)
    lifted: set[str] = field(default_factory=set)  # sessions that the denial spares

    def add(self, decision: Identity) -> None:
        if decision.scope is Scope.DENIED:
            self.denied, self.permanent = True, False
            self.sessions.clear()
            self.lifted.clear()
        elif decision.scope is Scope.PERMANENT:
            self.denied, self.permanent = False, True
            self.lifted.clear()
        elif decision.session_key is not None:  # without its session, an approval is for nobody
            self.sessions.add(decision.session_key)
            self.lifted.add(decision.session_key)


def _standing(decisions: Iterable[Identity]) -> dict[tuple[Subject, Rule], _Standing]:
    standing: dict[tuple[Subject, Rule], _Standing] = {}
    for decision in decisions:
        subject = Subject(decision.subject_type, decision.subject_name).identity
        rule = Rule(decision.resource_type, decision.operation, decision.target)
        standing.setdefault((subject, rule), _Standing()).add(decision)
    return standing


def _compiled(decisions: Iterable[Identity]) -> dict[_Holder, RuleSet]:
    standing = _standing(decisions)
    rules: dict[_Holder, list[Rule]] = {}
    for (subject, rule), state in standing.items():
        if state.permanent:
            rules.setdefault((Scope.PERMANENT, subject, None), []).append(rule)
        for session in state.sessions:
            rules.setdefault((Scope.SESSION, subject, session), []).append(rule)
    rules |= _denials(standing)
    return {key: RuleSet(own, wide=key[0] is Scope.DENIED) for key, own in rules.items()}


def _denials(standing: Mapping[tuple[Subject, Rule], _Standing]) -> dict[_Holder, list[Rule]]:
    """Return the denials of each subject, and those of each session that lifted one of them."""
    denied = {key: state for key, state in standing.items() if state.denied}
    rules: dict[_Holder, list[Rule]] = {}
    for subject in {subject for subject, _ in denied}:
        own = {rule: state for (who, rule), state in denied.items() if who == subject}
        for session in {None, *chain.from_iterable(state.lifted for state in own.values())}:
            held = [rule for rule, state in own.items() if session not in state.lifted]
            rules[Scope.DENIED, subject, session] = held
    return rules
