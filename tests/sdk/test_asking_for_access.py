"""`sdk.access`: guarded code asks, operators decide, and nobody forges either."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from sdk.asking import ASK, asked
from sdk.host import ANN, Host, rule

from democrai_osguard import runtime, sdk
from democrai_osguard.errors import ContractError, TargetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.approvals import Outcome


def test_the_constants_are_the_contract_s_words() -> None:
    assert sdk.access.EXTERNAL_RESOURCE_NETWORK == "network"
    assert sdk.access.EXTERNAL_RESOURCE_FILESYSTEM == "filesystem"
    assert sdk.access.EXTERNAL_RESOURCE_SYSTEM_DEPENDENCY == "system_dependency"


def test_what_is_declared_is_allowed(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    declared = (
        rule("network", "receive", "https://models.example.com/acme"),
        rule("system_dependency", "execute", "ffmpeg"),
    )
    with host.guard(access=declared):
        answers = [
            main("network", "receive", "https://models.example.com/acme/large?x=1"),
            main("system_dependency", "execute", "ffmpeg"),
        ]
    for answer in answers:
        assert (answer.allowed, answer.requires_approval) == (True, False)
        assert answer.code == "sandbox_allowed"
        assert "declares" in answer.message
    assert host.service.list_requests() == []


def test_what_nothing_allows_becomes_a_request_of_the_guard_s_subject(host: Host) -> None:
    runtime.use_approvals(host.service)
    answer = asked(host)
    assert (answer.allowed, answer.requires_approval, answer.code) == (False, True, "not_enabled")
    assert str(host.outside / "file") in answer.message
    (request,) = host.service.list_requests()
    assert request.id == answer.request_id
    assert str(request.subject) == "module:notes"
    assert request.origin.user_id == "7"
    assert request.origin.organization_id == "3"
    assert request.origin.session_key == "s-1"
    assert request.chain == (request.subject,)


def test_a_request_is_only_registered_if_it_is_to_be(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    with host.guard():
        answer = main("network", "send", "https://x.example.com", register_request=False)
        assert answer.request_id is None
        assert answer.requires_approval
    assert host.service.list_requests() == []
    require = host.load(ASK.replace("check_external", "require_external"))
    with host.guard():
        answer = require("network", "send", "https://x.example.com")
    assert [each.id for each in host.service.list_requests()] == [answer.request_id]


@pytest.mark.parametrize(
    ("decide", "code", "allowed"),
    [
        (sdk.access.approve_for_session, "session_approval", True),
        (sdk.access.approve_permanently, "permanent_approval", True),
        (sdk.access.deny_external_access, "denied", False),
    ],
)
def test_an_operator_s_decision_is_the_next_answer(
    host: Host, decide: Callable[..., Outcome], code: str, allowed: bool
) -> None:
    runtime.use_approvals(host.service)
    request_id = asked(host).request_id
    assert decide(request_id, ANN).applied
    answer = asked(host)
    assert (answer.code, answer.allowed, answer.requires_approval) == (code, allowed, False)
    other = asked(host, session_key="s-2")
    assert other.allowed is (code == "permanent_approval")


def test_an_approval_ends_with_its_session(host: Host) -> None:
    runtime.use_approvals(host.service)
    request_id = asked(host).request_id
    assert request_id is not None
    sdk.access.approve_for_session(request_id, ANN)
    assert asked(host).code == "session_approval"
    host.service.end_session("s-1")
    assert asked(host).code == "not_enabled"


def test_an_approval_counts_in_the_guard_that_is_still_active(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load("""
        from democrai_osguard import sdk

        def main(target, wait):
            question = {"resource_type": "filesystem", "operation": "read", "target": target}
            def read():
                try:
                    with open(target) as file:
                        return file.read()
                except PermissionError as error:
                    return error.code
            before = read()
            answer = sdk.access.check_external_access(**question)
            wait(answer.request_id)
            return before, answer.code, sdk.access.check_external_access(**question).code, read()
    """)
    found: list[Any] = []
    asking: list[str] = []
    decided = threading.Event()

    def wait(request_id: str) -> None:
        asking.append(request_id)
        assert decided.wait(60)

    def guarded() -> None:
        with host.guard():
            found.append(main(str(host.outside / "file"), wait))

    worker = threading.Thread(target=guarded)
    worker.start()
    while not asking:
        time.sleep(0.01)
    sdk.access.approve_permanently(asking[0], ANN)
    decided.set()
    worker.join()
    denied = "sandbox_filesystem_denied"
    assert found == [(denied, "not_enabled", "permanent_approval", "secret")]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("url", "read", "/x"), ContractError),
        (("filesystem", "write", "/x"), ContractError),
        (("network", "read", "https://x.example.com"), ContractError),
        (("filesystem", "read", ""), TargetError),
        (("filesystem", "read", "relative"), TargetError),
        (("filesystem", "read", "/a\0b"), TargetError),
        (("filesystem", "read", 5), TargetError),
        (("filesystem", "read", None), TargetError),
        (("network", "receive", ""), TargetError),
        (("network", "receive", "https://u:p@x.example.com"), TargetError),
        (("system_dependency", "execute", "rm -rf"), TargetError),
    ],
)
def test_a_question_that_makes_no_sense_is_an_error_and_no_request(
    host: Host, words: tuple[Any, ...], error: type[Exception]
) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    with host.guard(), pytest.raises(error):
        main(*words)
    assert host.service.list_requests() == []


def test_an_empty_network_target_has_its_own_code(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    with host.guard(), pytest.raises(TargetError, match="network_target_missing") as caught:
        main("network", "send", "")
    found = fields(caught.value)
    assert (found["subject"], found["operation"], found["target"]) == ("notes", "send", "")


def fields(error: BaseException) -> dict[str, object]:
    """Return what every refusal and failure says beside its message."""
    names = ("code", "subject", "operation", "target", "chain", "hint")
    found = {name: getattr(error, name) for name in names}
    assert found["chain"] == ("module:notes",)
    assert isinstance(found["hint"], str)
    assert found["hint"] != ""
    return found


def test_a_path_that_climbs_through_nothing_is_denied_and_not_asked_for(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    with host.guard():
        answer = main("filesystem", "read", "/no/such/../../etc/passwd")
    assert (answer.code, answer.requires_approval) == ("denied", False)
    assert host.service.list_requests() == []


def test_outside_of_a_guard_there_is_nobody_to_ask_for(host: Host) -> None:
    question = {"resource_type": "filesystem", "operation": "read", "target": "/x"}
    with pytest.raises(sdk.access.NoSubject):
        sdk.access.check_external_access(**question)  # type: ignore[arg-type]
    runtime.use_approvals(host.service)
    with pytest.raises(sdk.access.NoSubject):
        sdk.access.check_external_access(**question)  # type: ignore[arg-type]


def without_a_store(host: Host) -> None:
    """Leave nobody to ask, as where the operator names no store and the application no service."""
    assert host.folder.is_dir()
    del os.environ["DEMOCRAI_STATE_DIR"]


@pytest.mark.parametrize("nobody", [without_a_store, lambda _host: runtime.use_approvals(None)])
def test_without_a_service_the_rules_alone_answer(
    host: Host, nobody: Callable[[Host], None], caplog: pytest.LogCaptureFixture
) -> None:
    nobody(host)
    main = host.load(ASK)
    declared = (
        rule("network", "receive", "https://models.example.com/acme"),
        rule("filesystem", "read", host.outside),
        rule("system_dependency", "execute", "ffmpeg"),
    )
    with host.guard(access=declared):
        allowed = [
            main("network", "receive", "https://models.example.com/acme/large"),
            main("filesystem", "read", host.outside / "file"),
            main("system_dependency", "execute", "ffmpeg"),
        ]
        for answer in allowed:
            assert (answer.allowed, answer.code) == (True, "sandbox_allowed")
        denied = main("filesystem", "read", f"{host.outside}/missing/../file")
        assert (denied.allowed, denied.requires_approval, denied.code) == (False, False, "denied")
        with pytest.raises(ValueError, match="network_target_missing"):
            main("network", "receive", "")
        with pytest.raises(TargetError):
            main("filesystem", "read", "relative")
    assert caplog.messages == []  # nothing has failed


@pytest.mark.parametrize("register_request", [True, False])
def test_without_a_service_what_is_not_declared_is_closed_and_the_message_says_whom_to_name(
    host: Host, register_request: bool
) -> None:
    without_a_store(host)
    main = host.load(ASK)
    with host.guard():
        answer = main("filesystem", "read", "/x", register_request=register_request)
        assert (answer.allowed, answer.requires_approval) == (False, True)
        assert (answer.code, answer.request_id) == ("not_enabled", None)
        assert "Nobody keeps requests here" in answer.message
        assert "runtime.use_approvals" in answer.message
        own = main("filesystem", "read", "/proc/self/mem")
        assert (own.code, own.requires_approval) == ("denied", False)


def test_without_a_service_nothing_is_decided(host: Host) -> None:
    runtime.use_approvals(None)
    assert host.folder.is_dir()
    for decide in (
        sdk.access.approve_permanently,
        sdk.access.approve_for_session,
        sdk.access.deny_external_access,
    ):
        with pytest.raises(RuntimeError, match="no approval service"):
            decide("x", ANN)


def test_guarded_code_that_changes_classes_changes_no_answer_of_the_rules(host: Host) -> None:
    without_a_store(host)
    main = host.load("""
        from democrai_osguard import sdk
        from democrai_osguard.policy import chain, decide
        from democrai_osguard.targets import request

        def main(target):
            for place in (decide, chain.Chain):
                place.find = place.decide = lambda *_: 1 / 0
            request.access_request = None
            return sdk.access.check_external_access(
                resource_type="filesystem", operation="read", target=target)
    """)
    with host.guard():
        assert main(host.outside / "file").code == "not_enabled"


def test_a_backend_that_fails_is_no_denial_and_keeps_its_exception_to_itself(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    host.service.store.close()
    for file in (host.folder / "state/approvals").iterdir():
        file.write_bytes(b"no database" * 1000)
    with host.guard(), pytest.raises(RuntimeError) as caught:
        main("filesystem", "read", host.outside / "file")
    assert not isinstance(caught.value, PermissionError)
    assert fields(caught.value)["code"] == "sandbox_external_access_check_failed"
    assert caplog.messages[0].startswith("sandbox_external_access_check_failed: ")
    assert caplog.messages[0].endswith(f"module:notes read {host.outside}/file")
    files = [str(entry.path) for entry in caught.traceback]
    assert not any("osguard/approvals" in name or "osguard/runtime" in name for name in files)


def test_the_asynchronous_forms_answer_the_same(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load("""
        import asyncio
        from democrai_osguard import sdk

        async def main(target):
            question = {"resource_type": "filesystem", "operation": "read", "target": target}
            return await asyncio.gather(
                sdk.access.check_external_access_async(**question, register_request=False),
                sdk.access.require_external_access_async(**question))
    """)
    with host.guard():
        checked, required = asyncio.run(main(host.outside / "file"))
    assert checked.request_id is None
    assert required.request_id is not None
    assert checked.code == required.code == "not_enabled"


@pytest.mark.parametrize(
    ("decide", "code"),
    [
        (sdk.access.approve_for_session_async, "session_approval"),
        (sdk.access.approve_permanently_async, "permanent_approval"),
        (sdk.access.deny_external_access_async, "denied"),
    ],
)
def test_deciding_has_asynchronous_forms_and_takes_the_answer_itself(
    host: Host, decide: Callable[..., Any], code: str
) -> None:
    runtime.use_approvals(host.service)
    answer = asked(host)
    assert asyncio.run(decide(answer, ANN)).applied
    assert asked(host).code == code


@pytest.mark.parametrize("request_id", [None, 5, "nope"])
def test_a_request_that_there_is_not_is_an_error(host: Host, request_id: Any) -> None:  # noqa: ANN401 - nonsense
    runtime.use_approvals(host.service)
    with pytest.raises(LookupError, match="external_access_request_unknown"):
        sdk.access.approve_permanently(request_id, ANN)


def test_a_request_keeps_the_task_and_ids_that_are_numbers(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    with runtime.task_context(
        "notes", folder=host.folder / "notes", user_id=21, organization_id=3,
        session_key="sess-21", task_id="task-123",
    ) as info:  # fmt: skip
        assert info is not None
        assert info.task_id == "task-123"
        with runtime.tool_context("reader"):
            main("filesystem", "read", host.outside / "file")
    (request,) = host.service.list_requests()
    origin = request.origin
    assert (origin.user_id, origin.organization_id) == (21, 3)
    assert (origin.session_key, origin.task_id) == ("sess-21", "task-123")
