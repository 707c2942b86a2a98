"""The words of the access contract as frozen values: who does what to which target.

Pure: nothing here touches the file system, and no value is ever joined into a string key.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from democrai_osguard.errors import ContractError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable


class Word(StrEnum):
    """A word of the contract. It hashes as the text that it is, which is also the fast way."""

    __hash__ = str.__hash__


class ResourceType(Word):
    """What kind of thing is touched. There is no `url`: a URL is a network target."""

    NETWORK = "network"
    FILESYSTEM = "filesystem"
    SYSTEM_DEPENDENCY = "system_dependency"


class Operation(Word):
    """What is done to it. No operation implies another."""

    CONNECT = "connect"
    RECEIVE = "receive"
    SEND = "send"
    READ = "read"
    CREATE = "create"
    MODIFY = "modify"
    DELETE = "delete"
    EXECUTE = "execute"


OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.NETWORK: (Operation.CONNECT, Operation.RECEIVE, Operation.SEND),
    ResourceType.FILESYSTEM: (
        Operation.READ,
        Operation.CREATE,
        Operation.MODIFY,
        Operation.DELETE,
        Operation.EXECUTE,
    ),
    ResourceType.SYSTEM_DEPENDENCY: (Operation.EXECUTE,),
}


class SubjectType(Word):
    """The kinds of runtime actor. A task is a guard kind; approvals know it as its module."""

    MODULE = "module"
    ENGINE = "engine"
    EXTRACTOR = "extractor"
    AGENT = "agent"
    TOOL = "tool"
    PIPELINE = "pipeline"
    CORE = "core"
    MCP = "mcp"
    TASK = "task"


class Scope(Word):
    """How far a recorded decision reaches."""

    SESSION = "session"
    PERMANENT = "permanent"
    DENIED = "denied"


_SUBJECT_NAME_LIMIT = 255


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """A runtime actor: its kind and its real runtime name."""

    type: SubjectType
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", _word(SubjectType, self.type, "a subject type"))
        _check_subject_name(self.name)

    @classmethod
    def parse(cls, text: str) -> Subject:
        """Read `kind:name`, as people type it and as messages print it."""
        kind, separator, name = text.partition(":")
        if not separator:
            raise ContractError(f"{shown(text)}: a subject is written kind:name")
        return cls(_word(SubjectType, kind, "a subject type"), name)

    @property
    def identity(self) -> Subject:
        """The subject that approvals are recorded for: a task is known as its module."""
        return Subject(SubjectType.MODULE, self.name) if self.type is SubjectType.TASK else self

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """What a manifest declares and what an approval grants: one model for both."""

    resource_type: ResourceType
    operation: Operation
    target: str

    def __post_init__(self) -> None:
        resource_type, operation = operation_of(self.resource_type, self.operation)
        object.__setattr__(self, "resource_type", resource_type)
        object.__setattr__(self, "operation", operation)
        if not _is_text(self.target):
            raise ContractError(f"a rule's target is text, not {shown(self.target)}")

    @classmethod
    def of(cls, resource_type: str, operation: str, target: str) -> Rule:
        """Return the rule that these words name, whatever their type."""
        return cls(*operation_of(resource_type, operation), target)

    def __str__(self) -> str:
        return f"{self.resource_type} {self.operation} {self.target}"


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """Who wants to do what to which target, in normal form.

    A path that cannot be resolved safely keeps its text as target and says why in `unsafe`.
    """

    subject: Subject
    resource_type: ResourceType
    operation: Operation
    target: str
    session_key: str | None = None
    unsafe: str | None = None

    @property
    def rule(self) -> Rule:
        """The smallest rule that would allow this request."""
        return Rule(self.resource_type, self.operation, self.target)

    def identity(self, scope: Scope) -> Identity:
        """Return what a decision of this scope about this request is about."""
        subject = self.subject.identity
        session = self.session_key if scope is Scope.SESSION else None
        what = (self.resource_type, self.operation, self.target)
        return Identity(subject.type, subject.name, *what, scope, session)

    def __str__(self) -> str:
        return f"{self.subject}: {self.resource_type} {self.operation} {self.target}"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a decision is about, compared field by field."""

    subject_type: SubjectType
    subject_name: str
    resource_type: ResourceType
    operation: Operation
    target: str
    scope: Scope
    session_key: str | None = None


def operation_of(resource_type: str, operation: str) -> tuple[ResourceType, Operation]:
    """Return the pair as contract words; raise ContractError if they do not belong together."""
    resource = _word(ResourceType, resource_type, "a resource type")
    known = OPERATIONS[resource]
    if operation not in known:
        names = ", ".join(known)
        raise ContractError(f"{_quoted(operation)} is not an operation of {resource} ({names})")
    return resource, Operation(operation)


_Word = TypeVar("_Word", bound=Word)


def _word(words: type[_Word], value: object, what: str) -> _Word:
    if isinstance(value, str):
        try:
            return words(value)
        except ValueError:
            pass
    raise ContractError(f"{_quoted(value)} is not {what} ({_listed(words)})")


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)


def _check_subject_name(name: object) -> None:
    if not _is_text(name):
        raise ContractError(f"a subject has a name, not {shown(name)}")
    if len(name) > _SUBJECT_NAME_LIMIT:
        raise ContractError(f"a subject's name has at most {_SUBJECT_NAME_LIMIT} characters")
    if not name.isprintable() or name != name.strip():
        raise ContractError(f"{shown(name)}: a subject's name is printable, with no outer spaces")


def _quoted(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) and value.isidentifier() else shown(value)


def _listed(words: Iterable[Word]) -> str:
    return ", ".join(words)
