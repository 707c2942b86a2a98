"""What the tests of approvals ask for and who decides it."""

from __future__ import annotations

from democrai_osguard import Subject
from democrai_osguard.access import AccessRequest, Operation, ResourceType
from democrai_osguard.approvals import Operator

ADA = Operator("ada", super_role=True)
BOB = Operator("bob", super_role=True)
MODULE = Subject.parse("module:notes")


def read(path: str, session: str | None = "sess-1", subject: Subject = MODULE) -> AccessRequest:
    """Return a request to read a path."""
    return AccessRequest(subject, ResourceType.FILESYSTEM, Operation.READ, path, session)


def receive(url: str, session: str | None = "sess-1") -> AccessRequest:
    """Return a request to receive from a URL."""
    return AccessRequest(MODULE, ResourceType.NETWORK, Operation.RECEIVE, url, session)
