"""`DEMOCRAI_ACCESS` and its kin: what a child process inherits, written and read strictly.

Targets are written in normal form; who starts a child by hand may spell them otherwise. Missing
means closed; whatever is not understood is an error, and nothing runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from democrai_osguard.access import ResourceType, Rule, Subject
from democrai_osguard.errors import ContractError, ManifestError, TargetError, place
from democrai_osguard.manifest import parse_json
from democrai_osguard.targets import normalize_target
from democrai_osguard.targets.filesystem import is_normal_path

if TYPE_CHECKING:
    from collections.abc import Sequence

SUBJECT = "DEMOCRAI_NETWORK_SUBJECT"
KIND = "DEMOCRAI_NETWORK_SUBJECT_KIND"
CHAIN = "DEMOCRAI_SUBJECT_CHAIN"
ACCESS = "DEMOCRAI_ACCESS"
IDENTITY = ("DEMOCRAI_USER_ID", "DEMOCRAI_ORGANIZATION_ID", "DEMOCRAI_SESSION_KEY")
_KEYS = ("resource_type", "operation", "target")
_SUBJECT_KEYS = ("type", "name")
_LONGEST_CHAIN = 64


def child_environment(info: Sequence[Any]) -> dict[str, str]:
    """Return the variables of a child: the narrowed rules, who asks, and through whom."""
    kind, name, chain, _allowed, flat, identity, *_ = info
    items = [dict(zip(_KEYS, rule, strict=True)) for rule in flat]
    variables = {SUBJECT: name, KIND: kind, ACCESS: json.dumps(items)}
    if len(chain) > 1:
        variables[CHAIN] = json.dumps(chain)
    known = zip(IDENTITY, identity[: len(IDENTITY)], strict=True)
    return variables | {variable: str(value) for variable, value in known if value is not None}


def parse_access(text: str) -> tuple[Rule, ...]:
    """Read `DEMOCRAI_ACCESS`; raise ManifestError with one line for each place that is wrong."""
    document = _document(ACCESS, text)
    if not isinstance(document, list):
        raise ManifestError((f"{ACCESS}: expected a list",))
    problems: list[str] = []
    rules = [_rule(item, f"{ACCESS}[{number}]", problems) for number, item in enumerate(document)]
    if problems:
        raise ManifestError(tuple(problems))
    return tuple(rule for rule in rules if rule is not None)


def parse_chain(text: str, actor: Subject) -> tuple[Subject, ...]:
    """Read the subjects outside the one that acts, which ends the chain; raise ManifestError."""
    document = _document(CHAIN, text)
    if not isinstance(document, list) or not all(isinstance(each, str) for each in document):
        raise ManifestError((f"{CHAIN}: expected a list of subjects",))
    try:
        subjects = tuple(map(Subject.parse, document))
    except ContractError as error:
        raise ManifestError((f"{CHAIN}: {error}",)) from error
    if len(subjects) > _LONGEST_CHAIN:
        raise ManifestError((f"{CHAIN}: more than {_LONGEST_CHAIN} subjects",))
    if not subjects or subjects[-1] != actor:
        raise ManifestError((f"{CHAIN}: does not end with {actor}",))
    return subjects[:-1]


def _document(variable: str, text: str) -> object:
    try:
        return parse_json(text)
    except ManifestError as error:
        raise ManifestError(tuple(f"{variable}: {each}" for each in error.problems)) from error


def _rule(item: object, at: str, problems: list[str]) -> Rule | None:
    if not isinstance(item, Mapping):
        problems.append(f"{at}: expected an object")
        return None
    unknown = [key for key in item if key not in {*_KEYS, "subject"}]
    problems += [f"{place(at, key)}: unknown field" for key in unknown]
    if "subject" in item:
        _check_subject(item["subject"], at, problems)
    missing = [key for key in _KEYS if not isinstance(item.get(key), str)]
    if missing:
        problems.append(f"{at}: {' and '.join(missing)}: expected text")
        return None
    try:
        rule = Rule(item["resource_type"], item["operation"], item["target"])
    except ContractError as error:
        problems.append(f"{at}: {error}")
        return None
    try:
        return Rule(rule.resource_type, rule.operation, _normal(rule))
    except TargetError as error:
        problems.append(f"{at}.target: {error}")
        return None


def _check_subject(subject: object, at: str, problems: list[str]) -> None:
    if not isinstance(subject, Mapping) or set(subject) != set(_SUBJECT_KEYS):
        problems.append(f"{at}.subject: expected an object with type and name")
        return
    try:
        Subject(subject["type"], subject["name"])
    except ContractError as error:
        problems.append(f"{at}.subject: {error}")


def _normal(rule: Rule) -> str:
    """Return the target's normal form; raise TargetError where it has none."""
    if rule.resource_type is not ResourceType.FILESYSTEM:
        return normalize_target(rule.resource_type, rule.target)
    if not rule.target.startswith("/"):
        raise TargetError(rule.target, "not an absolute path")
    # Links may differ where the child runs, so the form alone is looked at: what climbs has none.
    path = "/" + "/".join(part for part in rule.target.split("/") if part not in {"", "."})
    if not is_normal_path(path):
        raise TargetError(rule.target, "not in normal form")
    return path
