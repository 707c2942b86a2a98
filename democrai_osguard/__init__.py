"""democrai-osguard: what code that is not fully trusted may touch, decided and explained.

The names of the contract's core are here at once. What costs more to import comes when it is used.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from democrai_osguard.access import Rule, Subject
from democrai_osguard.errors import ManifestError, OsGuardError, ProfileError, TargetError
from democrai_osguard.manifest import Manifest, load_manifest
from democrai_osguard.policy.decide import Policy, decide
from democrai_osguard.policy.decision import Allow, Deny, RequiresApproval
from democrai_osguard.targets import covers, normalize_target

if _TYPE_CHECKING:
    from democrai_osguard import runtime, sdk
    from democrai_osguard.approvals import ApprovalService, open_store
    from democrai_osguard.guard import (
        current_guard,
        network_policy_context,
        process_guard_bypass_context,
        process_guard_context,
        process_guard_from_env,
    )

__all__ = [
    "Allow",
    "ApprovalService",
    "Deny",
    "Manifest",
    "ManifestError",
    "OsGuardError",
    "Policy",
    "ProfileError",
    "RequiresApproval",
    "Rule",
    "Subject",
    "TargetError",
    "covers",
    "current_guard",
    "decide",
    "load_manifest",
    "network_policy_context",
    "normalize_target",
    "open_store",
    "process_guard_bypass_context",
    "process_guard_context",
    "process_guard_from_env",
    "runtime",
    "sdk",
]

_LATER = {
    "ApprovalService": "approvals",
    "open_store": "approvals",
    "current_guard": "guard",
    "network_policy_context": "guard",
    "process_guard_bypass_context": "guard",
    "process_guard_context": "guard",
    "process_guard_from_env": "guard",
}


def __getattr__(name: str) -> object:
    """Import what is asked for by a public name, once."""
    if name in {"runtime", "sdk"}:
        return _import_module(f"democrai_osguard.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(_import_module(f"democrai_osguard.{_LATER[name]}"), name)
    globals()[name] = found
    return found
