"""Any target in normal form, and whether one covers another: the same answer for every caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from democrai_osguard.access import ResourceType, operation_of
from democrai_osguard.errors import ContractError, UnsafePath
from democrai_osguard.targets.dependency import normalize_dependency
from democrai_osguard.targets.filesystem import normalize_path, path_covers
from democrai_osguard.targets.network import parse_network

if TYPE_CHECKING:
    import os


def normalize_target(
    resource_type: str,
    text: str | bytes | os.PathLike[str],
    *,
    operation: str | None = None,
    base: str | os.PathLike[str] | None = None,
) -> str:
    """Return a target's normal form; raise TargetError, which says what is wrong with it.

    With an operation, a path is resolved as that operation would meet it: create and delete act
    on the name itself. `base` is the folder that a relative path is relative to.
    """
    if operation is not None:
        operation_of(resource_type, operation)
    if resource_type == ResourceType.FILESYSTEM:
        return normalize_path(text, operation=operation, base=base)
    if resource_type == ResourceType.NETWORK:
        return str(parse_network(text))  # type: ignore[arg-type] # it says what it does not take
    if resource_type == ResourceType.SYSTEM_DEPENDENCY:
        return normalize_dependency(text)
    names = ", ".join(ResourceType)
    raise ContractError(f"{resource_type!a} is not a resource type ({names})")


def covers(resource_type: str, rule_target: str, target: str) -> bool:
    """Tell whether a rule for one target holds for the other; either may be in any form.

    A path that cannot be resolved safely is covered by nothing.
    """
    rule = normalize_target(resource_type, rule_target)
    try:
        asked = normalize_target(resource_type, target)
    except UnsafePath:
        return False
    if resource_type == ResourceType.FILESYSTEM:
        return path_covers(rule, asked)
    if resource_type == ResourceType.NETWORK:
        return parse_network(rule).covers(parse_network(asked))
    return rule == asked
