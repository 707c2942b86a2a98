"""Each store finds by key what the ledger in memory finds by walking: the same, always."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.policy.generated import Asked, asked

from democrai_osguard import Rule, Subject, normalize_target
from democrai_osguard.access import AccessRequest, Identity, Operation, ResourceType, Scope
from democrai_osguard.approvals import ApprovalService, Operator, open_store
from democrai_osguard.policy.ledger import Ledger
from democrai_osguard.policy.ruleset import RuleSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from approvals.postgres_server import PostgresServer

    from democrai_osguard.policy.ledger import Verdicts

OPERATOR = Operator("ada", super_role=True)
SUBJECTS = tuple(map(Subject.parse, ("module:m", "engine:e")))
# What a server may read as another path: denials must hold for it, grants must not.
_awkward = st.sampled_from(
    ("/v1//x", "/v1%2Fx", "/v1/x/", "//v1/x", "/v1%252Fx", "/v1/x;a", "/v1/x?a=b", "/v1?")
).map(lambda path: normalize_target("network", f"https://example.com{path}"))
_awkward_asked = _awkward.map(lambda target: Asked(ResourceType.NETWORK, Operation.RECEIVE, target))
_anything = st.one_of(asked, asked, _awkward_asked)


def _identity(subject: Subject, what: Asked, scope: Scope, session: str) -> Identity:
    own = session if scope is Scope.SESSION else None
    return Identity(subject.type, subject.name, *what, scope, own)


def _request(subject: Subject, what: Asked, session: str | None) -> AccessRequest:
    return AccessRequest(subject, what.resource_type, what.operation, what.target, session)


decisions = st.lists(
    st.builds(
        _identity,
        st.sampled_from(SUBJECTS),
        _anything,
        st.sampled_from(tuple(Scope)),
        st.sampled_from(("s1", "s2")),
    ),
    max_size=10,
)
requests = st.lists(
    st.builds(
        _request,
        st.sampled_from(SUBJECTS),
        _anything,
        st.sampled_from(("s1", "s2", None)),
    ),
    min_size=5,
    max_size=12,
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApprovalService]:
    """Return one service for all examples, on each kind of store in turn."""
    url = f"sqlite://{tmp_path_factory.mktemp('ledger')}/store/s"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.fresh_url()
    made = ApprovalService(open_store(url))
    yield made
    made.close()


@settings(max_examples=150, deadline=None)
@given(decisions, requests)
def test_the_store_answers_as_the_ledger_does(
    shared: ApprovalService, made: list[Identity], asked_for: list[AccessRequest]
) -> None:
    service = shared
    for standing in service.list_decisions():
        service.store.revoke(standing.id, "tests", 0.0, lambda _: None)
    for decision in made:
        service.record(decision, OPERATOR)
    ledger = Ledger(tuple(made))
    for request in (*asked_for, *map(_about, made)):
        for verdicts in (service, service.verdicts()):
            for scope, ask in QUESTIONS.items():
                found, expected = ask(verdicts, request), ask(ledger, request)
                assert (found is None) == (expected is None), (scope, request, expected)
                assert found is None or _covers(found, request, scope)


QUESTIONS: dict[Scope, Callable[[Verdicts, AccessRequest], Rule | None]] = {
    Scope.DENIED: lambda verdicts, request: verdicts.denial(request),
    Scope.SESSION: lambda verdicts, request: verdicts.session_approval(request),
    Scope.PERMANENT: lambda verdicts, request: verdicts.permanent_approval(request),
}


def _about(decision: Identity) -> AccessRequest:
    subject = Subject(decision.subject_type, decision.subject_name)
    what = (decision.resource_type, decision.operation, decision.target)
    return AccessRequest(subject, *what, decision.session_key)


def _covers(rule: Rule, request: AccessRequest, scope: Scope) -> bool:
    return RuleSet([rule], wide=scope is Scope.DENIED).covers(request.rule)
