from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from democrai_osguard import Rule, Subject, normalize_target
from democrai_osguard.access import AccessRequest, Operation, ResourceType, Scope, operation_of
from democrai_osguard.errors import ContractError, OsGuardError

OPERATIONS = {
    "network": ("connect", "receive", "send"),
    "filesystem": ("read", "create", "modify", "delete", "execute"),
    "system_dependency": ("execute",),
}
EVERY_OPERATION = sorted({name for names in OPERATIONS.values() for name in names})
SUBJECT_TYPES = (
    *("module", "engine", "extractor", "agent", "tool", "pipeline", "core", "mcp", "task"),
)


@pytest.mark.parametrize("resource", OPERATIONS)
@pytest.mark.parametrize("operation", EVERY_OPERATION)
def test_each_resource_has_its_own_operations(resource: str, operation: str) -> None:
    if operation in OPERATIONS[resource]:
        assert operation_of(resource, operation) == (resource, operation)
        return
    with pytest.raises(ContractError, match=f"'{operation}' is not an operation of {resource}"):
        operation_of(resource, operation)


@pytest.mark.parametrize("resource", ["url", "", "Network", "NETWORK", "file"])
def test_there_is_no_other_resource_type(resource: str) -> None:
    with pytest.raises(ContractError, match="resource type"):
        operation_of(resource, "read")
    with pytest.raises(ContractError, match="resource type"):
        normalize_target(resource, "/x")


def test_an_operation_of_another_resource_is_an_error_in_normalising() -> None:
    with pytest.raises(ContractError, match="not an operation of filesystem"):
        normalize_target("filesystem", "/x", operation="connect")


@pytest.mark.parametrize("kind", SUBJECT_TYPES)
def test_a_subject_reads_as_it_prints(kind: str) -> None:
    subject = Subject.parse(f"{kind}:some-name")
    assert (subject.type, subject.name) == (kind, "some-name")
    assert Subject.parse(str(subject)) == subject


def test_a_name_may_hold_colons() -> None:
    assert Subject.parse("tool:a:b").name == "a:b"


@pytest.mark.parametrize(
    "text", ["module", "", ":x", "module:", "Module:x", "user:x", "url:x", "module: x", "tool:a\nb"]
)
def test_what_is_no_subject_is_an_error(text: str) -> None:
    with pytest.raises(ContractError):
        Subject.parse(text)


def test_a_task_is_known_as_its_module_and_nobody_else_is() -> None:
    assert Subject.parse("task:x").identity == Subject.parse("module:x")
    for kind in SUBJECT_TYPES[:-1]:
        subject = Subject.parse(f"{kind}:x")
        assert subject.identity == subject


def test_a_rule_checks_its_words() -> None:
    with pytest.raises(ContractError):
        Rule("network", "read", "example.com")  # type: ignore[arg-type] # wrong on purpose
    with pytest.raises(ContractError):
        Rule(ResourceType.NETWORK, Operation.SEND, "")


def test_values_are_frozen() -> None:
    rule = Rule(ResourceType.NETWORK, Operation.SEND, "example.com")
    with pytest.raises(FrozenInstanceError):
        rule.target = "evil.com"  # type: ignore[misc] # wrong on purpose
    assert rule == Rule(ResourceType.NETWORK, Operation.SEND, "example.com")


def test_identities_are_compared_field_by_field() -> None:
    request = AccessRequest(
        Subject.parse("module:a"), ResourceType.FILESYSTEM, Operation.READ, "/x", "s"
    )
    others = (
        replace(request, subject=Subject.parse("module:b")),
        replace(request, subject=Subject.parse("engine:a")),
        replace(request, operation=Operation.MODIFY),
        replace(request, target="/y"),
    )
    for scope in Scope:
        identity = request.identity(scope)
        assert identity == replace(request).identity(scope)
        assert all(identity != other.identity(scope) for other in others)
    assert len({request.identity(scope) for scope in Scope}) == len(Scope)


def test_only_a_session_decision_knows_its_session() -> None:
    request = AccessRequest(
        Subject.parse("task:a"), ResourceType.FILESYSTEM, Operation.READ, "/x", "s"
    )
    sessions = {scope: request.identity(scope).session_key for scope in Scope}
    assert sessions == {Scope.SESSION: "s", Scope.PERMANENT: None, Scope.DENIED: None}
    assert request.identity(Scope.SESSION).subject_type == "module"


def test_names_that_look_alike_when_joined_are_not_one_identity() -> None:
    one = AccessRequest(Subject.parse("tool:a:b"), ResourceType.FILESYSTEM, Operation.READ, "/c")
    two = replace(one, subject=Subject.parse("tool:a"), target="b:/c")
    assert one.identity(Scope.DENIED) != two.identity(Scope.DENIED)


def test_every_error_of_ours_has_a_code_of_its_own() -> None:
    def below(kind: type[OsGuardError]) -> list[type[OsGuardError]]:
        return [kind, *(found for one in kind.__subclasses__() for found in below(one))]

    # Only those of this package's own module: other rooms share codes where the contract does.
    codes = [
        kind.code for kind in below(OsGuardError) if kind.__module__ == OsGuardError.__module__
    ]
    assert len(set(codes)) == len(codes)
