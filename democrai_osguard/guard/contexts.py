"""Guards as context managers: who acts, under which rules, and on whose behalf."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from democrai_osguard.access import OPERATIONS, Operation, ResourceType, Rule, Subject
from democrai_osguard.errors import ContractError, shown
from democrai_osguard.guard import access_variable
from democrai_osguard.guard.installation import answer_by_default, doors, install, undescribed
from democrai_osguard.guard.outcome import as_error
from democrai_osguard.targets import normalize_target

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    Item = Rule | Mapping[str, str]
    Id = int | str  # as the application names its users

_RULE_KEYS = ("resource_type", "operation", "target")
_Item = TypeVar("_Item")
_LONGEST_KEY = 255  # as approvals keep them
_FOLDER_OPERATIONS = (Operation.READ, Operation.CREATE, Operation.MODIFY, Operation.DELETE)
_ASSETS = frozenset({"tool", "agent", "pipeline"})
_Plain = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class GuardInfo:
    """What the active guard is, as a copy: changing it changes nothing."""

    subject: Subject
    subject_kind: str
    subject_chain: tuple[Subject, ...]
    allowed_imports: tuple[str, ...]
    allow_subprocess: bool
    user_id: Id | None
    organization_id: Id | None
    session_key: str | None
    task_id: Id | None = None
    _allowed: tuple[tuple[_Plain, ...], ...] = ()
    _flat: tuple[_Plain, ...] = ()

    @property
    def subject_allow_chain(self) -> tuple[tuple[Rule, ...], ...]:
        """The rules that each subject of the chain contributed."""
        return tuple(tuple(Rule(*rule) for rule in rules) for rules in self._allowed)  # type: ignore[arg-type] # words

    @property
    def access(self) -> tuple[Rule, ...]:
        """What the chain allows as a whole, narrowing applied: what a child would inherit."""
        return tuple(Rule(*rule) for rule in self._flat)  # type: ignore[arg-type] # words


class process_guard_context:  # noqa: N801 - the contract's name
    """Guard what the `with` block runs: files, network, imports, processes, environment."""

    __slots__ = ("__weakref__", "_fields", "_handle")

    def __init__(  # noqa: PLR0913, PLR0917 - the contract names them
        self,
        subject: str | Subject,
        subject_kind: str | None = None,
        access: Iterable[Item] | None = (),
        allowed_paths: Iterable[str | os.PathLike[str] | Rule] | None = (),
        allowed_targets: Iterable[str | Rule] | None = (),
        allowed_imports: Iterable[str] | None = (),
        allow_subprocess: bool = False,  # noqa: FBT001, FBT002 - the contract has them so
        include_runtime_paths: bool = True,  # noqa: FBT001, FBT002 - the contract has them so
        user_id: Id | None = None,
        organization_id: Id | None = None,
        session_key: str | None = None,
        task_id: Id | None = None,
    ) -> None:
        (lambda: None).__code__  # noqa: B018 - names are put right; see `sealed.hook`
        who = _subject(subject, subject_kind)
        _check_identity(user_id, organization_id, task_id, session_key)
        rules = (*rules_of(access), *_paths(allowed_paths), *_targets(allowed_targets))
        self._describe(
            who,
            _declared(who, rules),
            tuple(map(str, _several("allowed_imports", allowed_imports))),
            (user_id, organization_id, session_key, task_id),
            (bool(allow_subprocess), bool(include_runtime_paths), False),
        )

    def _describe(  # noqa: PLR0913, PLR0917 - a guard is described by as many
        self,
        who: Subject,
        rules: Iterable[Rule] | None,
        imports: tuple[str, ...],
        identity: tuple[Id | None, ...],
        allows: tuple[bool, bool, bool],
        before: tuple[str, ...] = (),
    ) -> None:
        plain = None if rules is None else tuple(map(_plain_rule, rules))
        ids = tuple(map(_plain_id, identity))
        self._handle: Any = None
        self._fields: Any = str(who.type), str(who.name), plain, imports, ids, allows, before
        if doors:
            self.hand_over(doors["describe"])
        else:  # there is no guarded code yet, and making a guard installs nothing
            undescribed.append(ref(self))

    def hand_over(self, describe: Any) -> None:
        """Put the description where nobody can change it."""
        answer = describe(self, *self._fields)
        if isinstance(answer, BaseException):
            raise as_error(answer) from None

    def __enter__(self) -> GuardInfo | None:
        install()
        if doors["carried"]() is None:
            answer_by_default()
        self._handle = doors["enter"](self)
        if isinstance(self._handle, BaseException):
            raise as_error(self._handle) from None
        return current_guard()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        answer = doors["leave"](self._handle)
        if isinstance(answer, BaseException):
            raise as_error(answer) from None


class process_guard_bypass_context:  # noqa: N801 - the contract's name
    """Let this package's own code act without a guard; all other code inside one is refused.

    Without a guard it does nothing, whoever uses it.
    """

    __slots__ = ("_handle",)

    def __enter__(self) -> None:
        self._handle = doors["bypass"]() if doors else None
        if isinstance(self._handle, BaseException):
            raise as_error(self._handle) from None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            answer = doors["leave"](self._handle)
            if isinstance(answer, BaseException):
                raise as_error(answer) from None


class network_policy_context(process_guard_context):  # noqa: N801 - the contract's name
    """Guard the network alone: files, imports and processes stay as they are outside."""

    __slots__ = ()

    def __init__(  # noqa: PLR0913, PLR0917 - the contract names them
        self,
        subject: str | Subject,
        subject_kind: str | None = None,
        allowed_targets: Iterable[str | Rule] | None = (),
        access: Iterable[Item] | None = (),
        user_id: Id | None = None,
        organization_id: Id | None = None,
        session_key: str | None = None,
        task_id: Id | None = None,
    ) -> None:
        (lambda: None).__code__  # noqa: B018 - as above
        who = _subject(subject, subject_kind)
        _check_identity(user_id, organization_id, task_id, session_key)
        self._describe(
            who,
            _declared(who, (*rules_of(access), *_targets(allowed_targets))),
            (),
            (user_id, organization_id, session_key, task_id),
            (False, True, True),
        )


def process_guard_from_env() -> process_guard_context:
    """Return the guard that this process's environment describes.

    Missing variables close: no `DEMOCRAI_ACCESS` means no rules. Raises ManifestError or
    ContractError where a variable is not understood, and then nothing should run.
    """
    env = os.environ
    text = env.get(access_variable.ACCESS)
    rules = () if text is None else access_variable.parse_access(text)
    user, organization, session = (env.get(name) for name in access_variable.IDENTITY)
    name, kind = env.get(access_variable.SUBJECT, "unknown"), env.get(access_variable.KIND, "core")
    guard = process_guard_context(
        name,
        kind,
        access=rules,
        user_id=user,
        organization_id=organization,
        session_key=session,
    )
    path = env.get(access_variable.CHAIN)
    if path is not None:
        who = Subject.parse(f"{kind}:{name}")
        before = tuple(map(str, access_variable.parse_chain(path, who)))
        identity = user, organization, session, None
        declared = _declared(who, tuple(rules_of(rules)))
        guard._describe(who, declared, (), identity, (False, True, False), before)  # noqa: SLF001 - this module's own class
    return guard


def current_guard() -> GuardInfo | None:
    """Return the active guard, None where there is none."""
    found = doors["info"]() if doors else None
    if found is None:
        return None
    kind, name, chain, allowed, flat, identity, imports, subprocess = found
    return GuardInfo(
        Subject(kind, name),
        kind,
        tuple(map(Subject.parse, chain)),
        imports,
        subprocess,
        user_id=identity[0],
        organization_id=identity[1],
        session_key=identity[2],
        task_id=identity[3],
        _allowed=allowed,
        _flat=flat,
    )


def _declared(who: Subject, rules: tuple[Rule, ...]) -> tuple[Rule, ...] | None:
    """Return what a subject declares; an asset that declares nothing leaves the outer policy."""
    return None if not rules and who.type in _ASSETS else rules


def _plain_rule(rule: Rule) -> _Plain:
    return str(rule.resource_type), str(rule.operation), str(rule.target)


def _plain_id(value: Id | None) -> Id | None:
    return str(value) if isinstance(value, str) else None if value is None else index(value)


def rules_of(items: Iterable[Item] | None) -> list[Rule]:
    """Return declarations as rules in normal form: `Rule` objects, or what a manifest says."""
    rules = (item if isinstance(item, Rule) else _rule(item) for item in _several("access", items))
    return [
        Rule(r.resource_type, r.operation, normalize_target(r.resource_type, r.target))
        for r in rules
    ]


def _rule(item: object) -> Rule:
    if not isinstance(item, Mapping):
        raise ContractError(f"{shown(item)} is no rule: write a Rule, or what a manifest says")
    # As in DEMOCRAI_ACCESS, an item may say whose it is.
    words = {key: value for key, value in item.items() if key != "subject"}
    if set(words) != set(_RULE_KEYS):
        names = ", ".join(_RULE_KEYS)
        raise ContractError(f"{shown(dict(item))} is no rule: a rule has {names}, and nothing else")
    return Rule(**words)


def _paths(items: Iterable[str | os.PathLike[str] | Rule] | None) -> list[Rule]:
    found = []
    for item in _several("allowed_paths", items):
        if isinstance(item, Rule):
            found += rules_of([item])
            continue
        target = normalize_target(ResourceType.FILESYSTEM, item)
        found += [Rule(ResourceType.FILESYSTEM, verb, target) for verb in _FOLDER_OPERATIONS]
    return found


def _targets(items: Iterable[str | Rule] | None) -> list[Rule]:
    found = []
    for item in _several("allowed_targets", items):
        if isinstance(item, Rule):
            found += rules_of([item])
            continue
        target = normalize_target(ResourceType.NETWORK, item)
        verbs = OPERATIONS[ResourceType.NETWORK]
        found += [Rule(ResourceType.NETWORK, verb, target) for verb in verbs]
    return found


def _several(name: str, items: Iterable[_Item] | None) -> Iterable[_Item]:
    """Return the items; one by itself would be read letter by letter, or key by key."""
    if isinstance(items, str | bytes | Mapping | os.PathLike):
        raise ContractError(f"{name}: expected a list, not {shown(items)} by itself")
    return () if items is None else items


def _subject(subject: str | Subject, kind: str | None) -> Subject:
    if not isinstance(subject, Subject):
        return Subject(kind, subject)  # type: ignore[arg-type] # it checks the words
    if kind is not None and kind != subject.type:
        raise ContractError(f"{subject} is no {kind}")
    return subject


def _check_identity(*ids: object) -> None:
    """Raise ContractError for what no application calls a user, an organisation or a session."""
    *numbers, session_key = ids
    for value in numbers:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | str)):
            raise ContractError(f"{shown(value)}: a user, organisation or task is a number or text")
    if session_key is not None and not _is_session_key(session_key):
        raise ContractError(f"a session key is printable text of 1 to {_LONGEST_KEY} characters")


def _is_session_key(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_KEY and value.isprintable()
