"""Looking ahead: which files a tool is about to touch, taken from its input before it runs.

A schema says which fields are paths and what is done to them. The strictest answer about any of
them is the answer about the call. What a tool does beyond its schema is caught when it does it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
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
    from collections.abc import Iterable, Iterator, Sequence

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
    "read": Operation.READ,
    "copy_from": Operation.READ,
    "delete": Operation.DELETE,
    "move_from": Operation.DELETE,
    "execute": Operation.EXECUTE,
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
    """Yield the paths of a field; a list on the way holds as many of what comes next."""
    if not isinstance(tool_input, Mapping):
        raise ToolInputError(f"a tool's input is an object, not {shown(tool_input)}")
    found: list[object] = [tool_input]
    for name in field.name.split("."):
        found = [_inside(each, name, field) for each in _items(found)]
    paths = [item for item in _items(found) if item is not None]
    if field.required and (not paths or len(paths) < len(list(_items(found)))):
        raise ToolInputError(f"{field.name}: a path is missing")
    yield from (_path(item, field) for item in paths)


def _items(values: Iterable[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _items(value)
        else:
            yield value


def _inside(value: object, name: str, field: PathField) -> object:
    if value is None or isinstance(value, Mapping):
        return None if value is None else value.get(name)
    raise ToolInputError(f"{field.name}: {shown(value)} is no object with {name!r} in it")


def _path(item: object, field: PathField) -> str:
    text = os.fspath(item) if isinstance(item, os.PathLike) else item
    if not isinstance(text, str) or not text:
        raise ToolInputError(f"{field.name}: {shown(item)} is not a path")
    return text


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
        for operation, place in _acts(effect, path):
            yield access_request(actor, ResourceType.FILESYSTEM, operation, place)
    except (TargetError, UnicodeError) as error:  # the latter for what no file name can be
        raise ToolInputError(str(error)) from error


def _acts(effect: str, path: str) -> Iterator[tuple[Operation, str]]:
    """Yield what an effect amounts to; writing changes what is there, or makes it."""
    if effect in _SIMPLE:
        yield _SIMPLE[effect], path
    elif os.path.exists(path):
        yield Operation.MODIFY, path
    else:
        yield Operation.CREATE, path
        if os.path.islink(path):  # it leads to nothing yet: who writes makes that, not the link
            yield Operation.CREATE, os.path.realpath(path)
