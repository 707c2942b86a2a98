"""`DEMOCRAI_ACCESS` and its kin: what a child process inherits, written and read strictly.

Missing means closed; whatever is not understood is an error, and nothing runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from democrai_osguard.access import ResourceType, Rule, Subject
from democrai_osguard.errors import ContractError, ManifestError, TargetError, shown
from democrai_osguard.manifest import parse_json
from democrai_osguard.targets import normalize_target
from democrai_osguard.targets.filesystem import is_normal_path

if TYPE_CHECKING:
    from collections.abc import Sequence

SUBJECT = "DEMOCRAI_NETWORK_SUBJECT"
KIND = "DEMOCRAI_NETWORK_SUBJECT_KIND"
ACCESS = "DEMOCRAI_ACCESS"
IDENTITY = ("DEMOCRAI_USER_ID", "DEMOCRAI_ORGANIZATION_ID", "DEMOCRAI_SESSION_KEY")
_KEYS = ("resource_type", "operation", "target")
_SUBJECT_KEYS = ("type", "name")


def child_environment(info: Sequence[Any]) -> dict[str, str]:
    """Return the variables of a child: the narrowed rules, and who asks."""
    kind, name, _chain, _allowed, flat, identity, *_ = info
    items = [dict(zip(_KEYS, rule, strict=True)) for rule in flat]
    variables = {SUBJECT: name, KIND: kind, ACCESS: json.dumps(items)}
    known = zip(IDENTITY, identity, strict=True)
    return variables | {variable: value for variable, value in known if value is not None}


def parse_access(text: str) -> tuple[Rule, ...]:
    """Read `DEMOCRAI_ACCESS`; raise ManifestError with one line for each place that is wrong."""
    document = parse_json(text)
    if not isinstance(document, list):
        raise ManifestError((f"{ACCESS}: expected a list",))
    problems: list[str] = []
    rules = [_rule(item, f"{ACCESS}[{number}]", problems) for number, item in enumerate(document)]
    if problems:
        raise ManifestError(tuple(problems))
    return tuple(rule for rule in rules if rule is not None)


def _rule(item: object, at: str, problems: list[str]) -> Rule | None:
    if not isinstance(item, Mapping):
        problems.append(f"{at}: expected an object")
        return None
    unknown = [key for key in item if key not in {*_KEYS, "subject"}]
    problems += [f"{at}: {shown(key)}: unknown field" for key in unknown]
    _check_subject(item.get("subject"), at, problems)
    missing = [key for key in _KEYS if not isinstance(item.get(key), str)]
    if missing:
        problems.append(f"{at}: {' and '.join(missing)}: expected text")
        return None
    try:
        rule = Rule(item["resource_type"], item["operation"], item["target"])
    except ContractError as error:
        problems.append(f"{at}: {error}")
        return None
    if not _is_normal(rule):
        problems.append(f"{at}.target: {shown(rule.target)} is not in normal form")
    return rule


def _check_subject(subject: object, at: str, problems: list[str]) -> None:
    if subject is None:
        return
    if not isinstance(subject, Mapping) or set(subject) != set(_SUBJECT_KEYS):
        problems.append(f"{at}.subject: expected an object with type and name")
        return
    try:
        Subject(subject["type"], subject["name"])
    except ContractError as error:
        problems.append(f"{at}.subject: {error}")


def _is_normal(rule: Rule) -> bool:
    if rule.resource_type is ResourceType.FILESYSTEM:
        # Links may differ where the child runs, so the form alone is looked at.
        return is_normal_path(rule.target)
    try:
        return normalize_target(rule.resource_type, rule.target) == rule.target
    except TargetError:
        return False
