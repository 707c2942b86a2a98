"""The guard: Python's own boundary around code that is not fully trusted."""

from democrai_osguard.guard.asking import Approvals, Bypassed, Refused, Witness
from democrai_osguard.guard.contexts import (
    GuardInfo,
    current_guard,
    network_policy_context,
    process_guard_bypass_context,
    process_guard_context,
    process_guard_from_env,
)
from democrai_osguard.guard.installation import install, protect, use_approvals

__all__ = [
    "Approvals",
    "Bypassed",
    "GuardInfo",
    "Refused",
    "Witness",
    "current_guard",
    "install",
    "network_policy_context",
    "process_guard_bypass_context",
    "process_guard_context",
    "process_guard_from_env",
    "protect",
    "use_approvals",
]
