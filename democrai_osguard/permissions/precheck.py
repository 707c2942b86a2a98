"""Looking ahead: which files a tool is about to touch, taken from its input before it runs.

A schema says which fields are paths and what is done to them. The strictest answer about any of
them is the answer about the call. What a tool does beyond its schema is caught when it does it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from democrai_osguard.access import Operation, ResourceType
from democrai_osguard.errors import ContractError, TargetError, shown
from democrai_osguard.permissions.patch_files import patched_files
from democrai_osguard.policy.decide import Policy, decide
from democrai_osguard.policy.decision import Allow, Decision, Deny, RequiresApproval
from democrai_osguard.targets.filesystem import expand_path
from democrai_osguard.targets.request import access_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from democrai_osguard.access import AccessRequest

EFFECTS = (
    "read",
    "write",
    "delete",
    "execute",
    "move_from",
    "move_to",
    "copy_from",
    "copy_to",
    "patch",
)


class ToolInputError(ContractError):
    """A tool's input whose paths cannot be read. The tool is not run."""

    code = "invalid_tool_input"


@dataclass(frozen=True, slots=True)
class PathField:
    """One field of a tool's input: where it is (dots go inside), and what is done to the path."""

    name: str
    effect: str
    required: bool = True

    def __post_init__(self) -> None:
        if self.effect not in EFFECTS:
            known = ", ".join(EFFECTS)
            raise ContractError(f"{shown(self.effect)} is not an effect of a path field ({known})")


_SIMPLE = {
    "read": (Operation.READ,),
    "copy_from": (Operation.READ,),
    "delete": (Operation.DELETE,),
    "move_from": (Operation.DELETE,),
    "execute": (Operation.EXECUTE,),
}


def precheck(
    schema: Sequence[PathField],
    tool_input: Mapping[str, object],
    policy: Policy,
    *,
    base: str | os.PathLike[str],
    session_key: str | None = None,
) -> tuple[Decision, ...]:
    """Return a decision for each file that the input names; raise ToolInputError if it is unclear.

    `base` is the folder in which the tool runs, `session_key` the session that it runs for.
    """
    touched = dict.fromkeys(
        replace(request, session_key=session_key)
        for field in schema
        for text in _texts(field, tool_input)
        for request in _requests(field.effect, text, policy, base)
    )
    return tuple(decide(request, policy) for request in touched)


def strictest(decisions: Sequence[Decision]) -> Decision | None:
    """Return the answer that the others bow to: a denial, then a question, then an allowance."""
    for kind in (Deny, RequiresApproval, Allow):
        for decision in decisions:
            if isinstance(decision, kind):
                return decision
    return None


def _texts(field: PathField, tool_input: Mapping[str, object]) -> Iterator[str]:
    value: object = tool_input
    for name in field.name.split("."):
        value = value.get(name) if hasattr(value, "get") else None
    if value is None:
        if field.required:
            raise ToolInputError(f"{field.name}: a path is missing")
        return
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, str) or not item:
            raise ToolInputError(f"{field.name}: {shown(item)} is not a path")
        yield item


def _requests(
    effect: str, text: str, policy: Policy, base: str | os.PathLike[str]
) -> Iterator[AccessRequest]:
    if effect == "patch":
        files = patched_files(text)
        if not files:
            raise ToolInputError("a patch that names no file")
        for file in files:
            yield from _requests(file.effect, file.path, policy, base)
        return
    actor = policy.chain.actor
    try:
        path = expand_path(text, base)  # with '~' filled in, as most tools would
        for operation in _SIMPLE.get(effect) or (_writing(path),):
            yield access_request(actor, ResourceType.FILESYSTEM, operation, path)
    except TargetError as error:
        raise ToolInputError(str(error)) from error


def _writing(path: str) -> Operation:
    """Return what writing to a path amounts to: changing what is there, or making it."""
    return Operation.MODIFY if os.path.exists(path) else Operation.CREATE
