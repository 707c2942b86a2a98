"""Rules as the launcher reads them: what may be done to which target. Pure, and strict."""

# ruff: noqa: PLC0415 - what most launches do not need is imported where it is needed

from __future__ import annotations

import os

from .errors import UsageError
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FILESYSTEM = "filesystem"
NETWORK = "network"
SYSTEM_DEPENDENCY = "system_dependency"

OPERATIONS: Mapping[str, tuple[str, ...]] = {
    FILESYSTEM: ("read", "create", "modify", "delete", "execute"),
    NETWORK: ("connect", "receive", "send"),
    SYSTEM_DEPENDENCY: ("execute",),
}
SUBJECT_TYPES = (
    "module", "engine", "extractor", "agent", "tool", "pipeline", "core", "mcp", "task",
)  # fmt: skip

_PROGRAM_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-")


class Subject(Record):
    """The runtime actor that a rule or the whole command belongs to."""

    type: str
    name: str


class Rule(Record):
    """One thing that the command may do."""

    resource_type: str
    operation: str
    target: str
    subject: Subject | None = None


def make_subject(kind: object, name: object, *, at: str) -> Subject:
    """Build a subject; raise UsageError, naming the place, for a type that does not exist."""
    check_subject_type(kind, at=at)
    if not isinstance(name, str) or not name or "\0" in name:
        raise UsageError(f"{at}: the subject needs a name")
    return Subject(str(kind), name)


def check_subject_type(kind: object, *, at: str) -> None:
    """Raise UsageError, naming the place, for a type of subject that does not exist."""
    if kind not in SUBJECT_TYPES:
        raise UsageError(f"{at}: {kind!r} is not a subject type ({', '.join(SUBJECT_TYPES)})")


def make_rule(
    resource_type: object, operation: object, target: object, *, at: str,
    subject: Subject | None = None,
) -> Rule:  # fmt: skip
    """Build a rule; raise UsageError, naming the place, for what the contract does not have."""
    if not isinstance(resource_type, str) or resource_type not in OPERATIONS:
        known = ", ".join(OPERATIONS)
        raise UsageError(f"{at}.resource_type: {resource_type!r} is not a resource type ({known})")
    operations = OPERATIONS[resource_type]
    if operation not in operations:
        known = ", ".join(operations)
        raise UsageError(
            f"{at}.operation: {operation!r} is not an operation of {resource_type} ({known})"
        )
    checked = check_target(resource_type, target, at=f"{at}.target")
    return Rule(resource_type, str(operation), checked, subject)


def check_target(resource_type: str, target: object, *, at: str) -> str:
    """Return the target as rules have it; raise UsageError, naming the place, for what is none."""
    if not isinstance(target, str) or not target:
        raise UsageError(f"{at}: expected a text that is not empty")
    return _TARGET_CHECKS[resource_type](target, at)


def beneath(path: str, root: str) -> bool:
    """Tell whether the path is the root or under it, on component boundaries."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def within(path: str, roots: Collection[str]) -> bool:
    """Tell whether the path is beneath one of the roots, in as many steps as it has parts."""
    while path not in roots:
        if path == "/":
            return False
        path = path.rpartition("/")[0] or "/"
    return True


def _path(target: str, at: str) -> str:
    if "\0" in target:
        raise UsageError(f"{at}: a path holds no NUL byte")
    if not target.isascii() and not _is_name(target):
        raise UsageError(f"{at}: {target!r} holds a character that no file name can hold")
    if not target.startswith("/"):
        raise UsageError(f"{at}: {target!r} is relative, and relative to nothing")
    if ".." in target.split("/"):
        raise UsageError(f"{at}: {target!r} climbs with '..'")
    return "/" + "/".join(part for part in target.split("/") if part not in {"", "."})


def _is_name(text: str) -> bool:
    """Tell whether the kernel can be given the text: half of a surrogate pair stands for nothing.

    Those that stand for undecodable bytes do.
    """
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _network(target: str, at: str) -> str:
    from .endpoints import parse  # only a policy with network rules pays for this import

    try:
        parse(target)
    except ValueError as error:
        raise UsageError(f"{at}: {error}") from error
    return target


def _program(target: str, at: str) -> str:
    if not _PROGRAM_NAME.issuperset(target) or target in {".", ".."}:
        raise UsageError(f"{at}: {target!r} is not a bare program name")
    return target


_TARGET_CHECKS = {FILESYSTEM: _path, NETWORK: _network, SYSTEM_DEPENDENCY: _program}
