"""The approval service, as the guard asks it: once per identity and activation, for a moment.

The guard knows only these protocols. Whoever runs the approvals registers a service; without one
nothing is denied or approved beyond the rules. A witness writes down what the guard refused, and
where the runtime went around it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from democrai_osguard.access import AccessRequest, Operation, ResourceType, Subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.access import Rule


class Approvals(Protocol):
    """Recorded decisions, and where a refused request is noted. Raising means: cannot answer."""

    def denial(self, request: AccessRequest) -> Rule | None:
        """Return the denial that stands in the way of the request."""

    def session_approval(self, request: AccessRequest) -> Rule | None:
        """Return the approval of the request's own session."""

    def permanent_approval(self, request: AccessRequest) -> Rule | None:
        """Return the approval that holds in every session."""

    def refused(self, request: AccessRequest, chain: tuple[Subject, ...]) -> None:
        """Note a request that nothing allows, so that a person may."""


@dataclass(frozen=True, slots=True)
class Refused:
    """What a guard did not let happen. Its target is text that guarded code chose."""

    code: str
    subject: str
    operation: str | None
    target: str
    chain: tuple[str, ...]
    reason: str
    session_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Bypassed:
    """Where the runtime's own code went around a guard, and around whose."""

    subject: str
    chain: tuple[str, ...]
    place: str  # file and line
    session_key: str | None = field(default=None, repr=False)


class Witness(Protocol):
    """Writes down what a guard does."""

    def refused(self, refused: Refused) -> None:
        """Note a refusal. It stands, whatever becomes of the note."""

    def bypassed(self, bypassed: Bypassed) -> None:
        """Note a bypass; raising means that it does not happen."""


_MISTAKE = "invalid_target"  # an error of the caller, which is no refusal


def notes_for(witness: Witness) -> tuple[Callable[..., None], ...]:
    """Return how the guard's plain values reach the witness: refusals, then bypasses."""

    def refused(answer: tuple[Any, ...], identity: tuple[Any, ...]) -> None:
        code, kind, subject, operation, target, chain, why = answer
        if code != _MISTAKE:
            who = f"{kind}:{subject}"
            witness.refused(Refused(code, who, operation, target, chain, why, identity[2]))

    def bypassed(info: tuple[Any, ...], place: str) -> None:
        kind, subject, chain, *_, identity, _imports, _subprocess = info
        witness.bypassed(Bypassed(f"{kind}:{subject}", chain, place, identity[2]))

    return refused, bypassed


# What a guard notes by itself. Low-level probes of files create no request.
_NOTED = ("network", "execute")


class Asker:
    """Turns the guard's plain questions into requests, and answers into plain values."""

    def __init__(self, service: Approvals, doors: Any) -> None:
        self._service = service
        self._doors = doors

    def __call__(
        self,
        token: object,
        resource: str,
        operation: str,
        target: str,
        declared: bool,  # noqa: FBT001 - a door takes its arguments by position
    ) -> bool | str:
        """Return True where the act is allowed, else why not."""
        kind, name, chain, *_, identity, _imports, _subprocess = self._doors["info_by_token"](token)
        subject = Subject(kind, name)
        what = ResourceType(resource), Operation(operation)
        request = AccessRequest(subject, *what, target, session_key=identity[2])
        return self._verdict(request, chain, declared=declared)

    def _verdict(
        self, request: AccessRequest, chain: tuple[str, ...], *, declared: bool
    ) -> bool | str:
        denial = self._service.denial(request)
        if denial is not None:
            return f"an operator denied {denial}"
        if declared or self._service.session_approval(request) is not None:
            return True
        if self._service.permanent_approval(request) is not None:
            return True
        if request.resource_type == _NOTED[0] or request.operation == _NOTED[1]:
            self._service.refused(request, tuple(map(Subject.parse, chain)))
        return False
