"""The approval service, as the guard asks it: once per identity and activation.

The guard knows only this protocol. Whoever runs the approvals registers a service; without one
nothing is denied or approved beyond the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from democrai_osguard.access import AccessRequest, Operation, ResourceType, Subject

if TYPE_CHECKING:
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


# What a guard notes by itself. Low-level probes of files create no request.
_NOTED = ("network", "execute")


class Asker:
    """Turns the guard's plain questions into requests, and answers into plain values."""

    def __init__(self, service: Approvals, doors: Any) -> None:  # noqa: ANN401
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
