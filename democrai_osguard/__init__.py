"""democrai-osguard: what code that is not fully trusted may touch, decided and explained."""

from democrai_osguard.access import Rule, Subject
from democrai_osguard.errors import ManifestError, OsGuardError, ProfileError, TargetError
from democrai_osguard.manifest import Manifest, load_manifest
from democrai_osguard.policy.decide import Policy, decide
from democrai_osguard.policy.decision import Allow, Deny, RequiresApproval
from democrai_osguard.targets import covers, normalize_target

__all__ = [
    "Allow",
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
    "decide",
    "load_manifest",
    "normalize_target",
]
