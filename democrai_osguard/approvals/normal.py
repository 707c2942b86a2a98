"""Whether a rule's target is in normal form, without looking at the file system.

Decisions are recorded with the target that a person saw, so nothing is resolved again here.
"""

from __future__ import annotations

from democrai_osguard.access import ResourceType, Rule
from democrai_osguard.errors import TargetError
from democrai_osguard.targets.dependency import normalize_dependency
from democrai_osguard.targets.filesystem import PATH_LIMIT, is_normal_path
from democrai_osguard.targets.network import parse_network


def check_normal(rule: Rule) -> None:
    """Raise TargetError unless the rule's target is in normal form."""
    if rule.resource_type is ResourceType.FILESYSTEM:
        _check_path(rule.target)
    elif rule.resource_type is ResourceType.NETWORK:
        if str(parse_network(rule.target)) != rule.target:
            raise TargetError(rule.target, "not in normal form")
    else:
        normalize_dependency(rule.target)


def _check_path(path: str) -> None:
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise TargetError(path, "contains a surrogate that stands for no byte") from error
    if len(raw) >= PATH_LIMIT:
        raise TargetError(path, f"longer than the kernel's {PATH_LIMIT} bytes")
    if not is_normal_path(path):
        raise TargetError(path, "not an absolute path in normal form")
