"""Recorded decisions as `decide` asks for them: rows found by key, judged by the one matcher."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from democrai_osguard.access import AccessRequest, Rule, Scope
from democrai_osguard.policy.ruleset import RuleSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.approvals.store import Store

FRESH_SECONDS = 0.25  # how old a remembered answer may be before the store is asked for changes
_REMEMBERED = 10_000  # answers of one guard activation

Answers = dict[Scope, Rule | None]


def answers(store: Store, request: AccessRequest) -> Answers:
    """Return the rule that each scope has for a request, in one look-up."""
    targets: dict[Scope, list[str]] = {}
    for found in store.covering(request):
        targets.setdefault(found.scope, []).append(found.target)
    if Scope.DENIED in targets:
        # A session's approval is newer than the denial that it stands beside: it lifts it here.
        lifted = targets.get(Scope.SESSION, ())
        targets[Scope.DENIED] = [each for each in targets[Scope.DENIED] if each not in lifted]
    return {scope: _matching(own, scope, request) for scope, own in targets.items()}


class _Scopes:
    """The three questions about a request, each answered out of one look-up."""

    __slots__ = ()

    def denial(self, request: AccessRequest) -> Rule | None:
        """Return the denial that stands in the way of the request."""
        return self._ask(request).get(Scope.DENIED)

    def session_approval(self, request: AccessRequest) -> Rule | None:
        """Return the approval of the request's own session."""
        return self._ask(request).get(Scope.SESSION)

    def permanent_approval(self, request: AccessRequest) -> Rule | None:
        """Return the approval that holds in every session."""
        return self._ask(request).get(Scope.PERMANENT)

    def _ask(self, request: AccessRequest) -> Answers:
        raise NotImplementedError


class StoreVerdicts(_Scopes):
    """The store's word on one request, looked up once for the three questions about it."""

    __slots__ = ("_answers", "_asked", "_request", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._request: AccessRequest | None = None
        self._answers: Answers = {}
        self._asked = 0.0

    def is_about(self, request: AccessRequest) -> bool:
        """Tell whether this very request has just been looked up."""
        return self._request is request and time.monotonic() - self._asked < FRESH_SECONDS

    def _ask(self, request: AccessRequest) -> Answers:
        if self._request != request:
            self._answers = answers(self._store, request)
            self._request, self._asked = request, time.monotonic()
        return self._answers


class ActivationVerdicts(_Scopes):
    """Answers remembered for one guard activation, and dropped when any decision changes.

    A change by another process is seen after FRESH_SECONDS at the latest. Threads may share it.
    """

    def __init__(
        self,
        store: Store,
        news: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._news = news
        self._known = 0
        self._clock = clock
        self._seen: dict[AccessRequest, Answers] = {}
        self._generation = -1
        self._checked = float("-inf")

    def _ask(self, request: AccessRequest) -> Answers:
        now = self._clock()
        news = self._news()  # what this process decided, or saw to be decided, counts at once
        if news != self._known or now - self._checked >= FRESH_SECONDS:
            self._refresh(now)
            self._known = news
        seen = self._seen
        known = seen.get(request)
        if known is None:
            known = answers(self._store, request)
            seen[request] = known  # in the dictionary of the generation that was asked
        return known

    def _refresh(self, now: float) -> None:
        generation = self._store.generation()
        if generation != self._generation or len(self._seen) >= _REMEMBERED:
            self._seen = {}
            self._generation = generation
        self._checked = now


def _matching(targets: list[str], scope: Scope, request: AccessRequest) -> Rule | None:
    rules = [Rule(request.resource_type, request.operation, target) for target in targets]
    matcher = RuleSet(rules, wide=scope is Scope.DENIED)
    return matcher.find(request.resource_type, request.operation, request.target)
