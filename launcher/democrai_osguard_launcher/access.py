"""DEMOCRAI_ACCESS: a policy as JSON in one environment variable, read strictly, written back.

`json` is imported only where there is something to read: it costs as much as all the rest.
"""

# ruff: noqa: PLC0415 - what most launches do not need is imported where it is needed

from __future__ import annotations

from .errors import UsageError
from .rules import Rule, Subject, make_rule, make_subject

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The kernel takes no longer string in an argument or environment list (MAX_ARG_STRLEN).
MAX_BYTES = 128 * 1024 - len("DEMOCRAI_ACCESS=") - 1
_REQUIRED = ("resource_type", "operation", "target")
_KNOWN = {*_REQUIRED, "subject"}


def parse(text: str | None, *, at: str = "DEMOCRAI_ACCESS") -> tuple[Rule, ...]:
    """Read the variable; None is no rules. Raise UsageError for anything else than a policy."""
    if text is None or text == "[]":
        return ()
    import json

    try:
        items = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{at}: not JSON: {error}") from error
    return parse_items(items, at=at)


def parse_items(items: object, *, at: str) -> tuple[Rule, ...]:
    """Read the rules of a document; raise UsageError where it is not a policy."""
    if not isinstance(items, list):
        raise UsageError(f"{at}: expected a list of rules")
    return tuple(_rule(item, f"{at}[{place}]") for place, item in enumerate(items))


def dump(rules: Sequence[Rule]) -> str:
    """Write the rules as the variable's value; raise UsageError when it cannot hold them."""
    quoted = _quoting() if rules else str
    text = f"[{','.join([_item(rule, quoted) for rule in rules])}]"
    if len(text) > MAX_BYTES:
        raise UsageError(
            f"{len(rules)} rules need {len(text)} bytes in DEMOCRAI_ACCESS, which holds {MAX_BYTES}"
        )
    return text


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):  # readers disagree on which of two equal keys counts
        raise ValueError("a key stands twice in one object")
    return found


def _rule(item: object, at: str) -> Rule:
    fields = _fields(item, at)
    missing = [name for name in _REQUIRED if name not in fields]
    if missing:
        raise UsageError(f"{at}.{missing[0]}: missing")
    subject = _subject(fields["subject"], f"{at}.subject") if "subject" in fields else None
    return make_rule(
        fields["resource_type"], fields["operation"], fields["target"], at=at, subject=subject
    )


def _fields(item: object, at: str) -> dict[str, object]:
    if not isinstance(item, dict):
        raise UsageError(f"{at}: expected an object")
    unknown = sorted(item.keys() - _KNOWN)
    if unknown:
        raise UsageError(f"{at}.{unknown[0]}: unknown field")
    return item


def _subject(value: object, at: str) -> Subject:
    if not isinstance(value, dict) or value.keys() != {"type", "name"}:
        raise UsageError(f"{at}: expected an object of type and name")
    return make_subject(value["type"], value["name"], at=at)


def _item(rule: Rule, quoted: Callable[[str], str]) -> str:
    fields = [f'"{name}":{quoted(getattr(rule, name))}' for name in _REQUIRED]
    if rule.subject is not None:
        kind, name = (quoted(value) for value in rule.subject)
        fields.append(f'"subject":{{"type":{kind},"name":{name}}}')
    return f"{{{','.join(fields)}}}"


def _quoting() -> Callable[[str], str]:
    """Return what writes a text as JSON does: its fast half alone, where the interpreter has it."""
    try:
        from _json import encode_basestring_ascii
    except ImportError:
        from json.encoder import py_encode_basestring_ascii as encode_basestring_ascii
    return encode_basestring_ascii
