"""From what somebody typed to a request: the only way in which raw text becomes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from democrai_osguard.access import AccessRequest, Subject, operation_of
from democrai_osguard.errors import UnsafePath
from democrai_osguard.targets.normal import normalize_target

if TYPE_CHECKING:
    import os


def access_request(  # noqa: PLR0913 - the fields of a request
    subject: Subject,
    resource_type: str,
    operation: str,
    text: str | bytes | os.PathLike[str],
    *,
    session_key: str | None = None,
    base: str | os.PathLike[str] | None = None,
) -> AccessRequest:
    """Return the request; raise TargetError or ContractError where there is none to decide."""
    resource, verb = operation_of(resource_type, operation)
    try:
        target = normalize_target(resource, text, operation=verb, base=base)
    except UnsafePath as error:
        unsafe, target = error.reason, str(error.value)
        return AccessRequest(subject, resource, verb, target, session_key, unsafe)
    return AccessRequest(subject, resource, verb, target, session_key)
