from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from democrai_osguard import Subject
from democrai_osguard.access import AccessRequest, Operation, ResourceType, Scope
from democrai_osguard.policy.ledger import Ledger

SUBJECTS = tuple(map(Subject.parse, ("module:m", "task:m", "engine:m")))
TARGETS = ("/srv/none", "/srv/none/a", "/srv/none/a/b", "/srv/none/ab")
SESSIONS = ("one", "two", None)

asked = st.builds(
    AccessRequest,
    st.sampled_from(SUBJECTS),
    st.just(ResourceType.FILESYSTEM),
    st.sampled_from((Operation.READ, Operation.MODIFY)),
    st.sampled_from(TARGETS),
    st.sampled_from(SESSIONS),
)
decisions = st.lists(
    st.tuples(asked, st.sampled_from([Scope.DENIED, Scope.DENIED, *Scope])), max_size=10
)


class Standing(NamedTuple):
    """What one thing's decisions amount to, for a request in some session."""

    denied: bool = False
    session: bool = False
    permanent: bool = False


def same_thing(one: AccessRequest, other: AccessRequest) -> bool:
    return (one.subject.identity, one.operation, one.target) == (
        *(other.subject.identity, other.operation),
        other.target,
    )


def standing(made: list[tuple[AccessRequest, Scope]], thing: AccessRequest) -> Standing:
    """Return what stands about exactly this thing in its session: the newest word counts."""
    now = Standing()
    for request, scope in made:
        if not same_thing(request, thing):
            continue
        if scope is Scope.DENIED:
            now = Standing(denied=True)
        elif scope is Scope.PERMANENT:
            now = now._replace(denied=False, permanent=True)
        elif request.session_key is not None and request.session_key == thing.session_key:
            now = now._replace(denied=False, session=True)
    return now


def expected(made: list[tuple[AccessRequest, Scope]], request: AccessRequest) -> Standing:
    """Return what stands about the request: a decision about a folder holds beneath it."""
    above = [
        target
        for target in TARGETS
        if request.target == target or request.target.startswith(f"{target}/")
    ]
    found = [
        standing(made, AccessRequest(*_who(request), target, request.session_key))
        for target in above
    ]
    return Standing(*(any(voices) for voices in zip(*found, strict=True)))


def _who(request: AccessRequest) -> tuple[Subject, ResourceType, Operation]:
    return request.subject, request.resource_type, request.operation


@given(decisions, st.lists(asked, min_size=5, max_size=10))
@settings(max_examples=300, deadline=None)
def test_the_newest_decision_about_each_thing_stands(
    made: list[tuple[AccessRequest, Scope]], asks: list[AccessRequest]
) -> None:
    ledger = Ledger()
    for request, scope in made:
        ledger = ledger.record(request.identity(scope))
    for request in asks:
        found = Standing(
            ledger.denial(request) is not None,
            ledger.session_approval(request) is not None,
            ledger.permanent_approval(request) is not None,
        )
        assert found == expected(made, request)
