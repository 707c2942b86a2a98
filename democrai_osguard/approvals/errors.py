"""What can go wrong with approvals, each with a code that stays.

A backend that cannot answer is a RuntimeError: access stays closed, and nobody takes it for a
refusal.
"""

from __future__ import annotations

from democrai_osguard.errors import OsGuardError


class ApprovalCheckFailed(OsGuardError, RuntimeError):
    """The approval backend could not answer or could not write."""

    code = "sandbox_external_access_check_failed"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{self.code}: {reason}")


class _Coded(OsGuardError):
    """An error whose text starts with its code."""

    def __init__(self, words: str) -> None:
        super().__init__(f"{self.code}: {words}")


class StoreRefused(_Coded, RuntimeError):
    """A store that this version must not touch: a newer one, or something else altogether."""

    code = "external_access_store_refused"


class AdminRequired(_Coded, PermissionError):
    """Somebody decides who is no operator."""

    code = "external_access_admin_required"


class SessionKeyRequired(_Coded, ValueError):
    """A session approval where there is no session."""

    code = "external_access_session_key_required"


class UnknownRequest(_Coded, LookupError):
    """No request has this id."""

    code = "external_access_request_unknown"


class UnknownDecision(_Coded, LookupError):
    """No decision that still stands has this number."""

    code = "external_access_decision_unknown"


class UnknownScope(_Coded, ValueError):
    """A scope that the contract does not know."""

    code = "external_access_scope_unknown"


class NotApprovable(_Coded, ValueError):
    """A request or rule that no decision can be about."""

    code = "external_access_not_approvable"


class NotWidenable(_Coded, ValueError):
    """A rule that has nothing wider, or nothing wider that a click should open."""

    code = "external_access_not_widenable"


class TooManyRequests(_Coded, RuntimeError):
    """A subject with so many open requests that nobody could read another one."""

    code = "external_access_too_many_requests"


class ResumeFailed(_Coded, RuntimeError):
    """A resume context that cannot be sealed or opened. The text never holds a part of it."""

    code = "external_access_resume_failed"


class ResumeTampered(ResumeFailed):
    """A sealed resume context that was changed, or moved here from another request."""

    code = "external_access_resume_tampered"
