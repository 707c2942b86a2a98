"""Approvals: what code asks for, what operators decided, and what goes on afterwards."""

from democrai_osguard.approvals.errors import (
    AdminRequired,
    ApprovalCheckFailed,
    NotApprovable,
    NotWidenable,
    ResumeFailed,
    ResumeTampered,
    SessionKeyRequired,
    StoreRefused,
    TooManyRequests,
    UnknownDecision,
    UnknownRequest,
    UnknownScope,
)
from democrai_osguard.approvals.opening import open_service, open_store
from democrai_osguard.approvals.records import (
    HistoryEntry,
    Operator,
    Origin,
    Outcome,
    PendingRequest,
    Resume,
    Standing,
    State,
)
from democrai_osguard.approvals.resuming import ResumeCall, rotate_keys, run_resumes
from democrai_osguard.approvals.service import ApprovalService

__all__ = [
    "AdminRequired",
    "ApprovalCheckFailed",
    "ApprovalService",
    "HistoryEntry",
    "NotApprovable",
    "NotWidenable",
    "Operator",
    "Origin",
    "Outcome",
    "PendingRequest",
    "Resume",
    "ResumeCall",
    "ResumeFailed",
    "ResumeTampered",
    "SessionKeyRequired",
    "Standing",
    "State",
    "StoreRefused",
    "TooManyRequests",
    "UnknownDecision",
    "UnknownRequest",
    "UnknownScope",
    "open_service",
    "open_store",
    "rotate_keys",
    "run_resumes",
]
