"""`sdk.access`: guarded code asks, operators decide, and nobody forges either."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from sdk.host import ANN, Host, rule

from democrai_osguard import runtime, sdk
from democrai_osguard.approvals import AdminRequired, Operator, SessionKeyRequired, run_resumes
from democrai_osguard.errors import ContractError, TargetError
from democrai_osguard.guard import use_approvals

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.access import AccessRequest, Rule
    from democrai_osguard.approvals import Outcome

ASK = """
from democrai_osguard import sdk

def main(resource_type, operation, target, **more):
    return sdk.access.check_external_access(
        resource_type=resource_type, operation=operation, target=target, **more)
"""
READ = "def main(path):\n    with open(path) as file: return file.read()"


def asked(host: Host, session_key: str | None = "s-1") -> sdk.access.ExternalAccess:
    main = host.load(ASK)
    with host.guard(session_key=session_key):
        return main("filesystem", "read", host.outside / "file")  # type: ignore[no-any-return]


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


# The attacker: guarded code that wants to be someone else, decide, or see what is not its own.


@pytest.mark.parametrize(
    "decide", ["approve_for_session", "approve_permanently", "deny_external_access"]
)
def test_guarded_code_decides_nothing_even_as_an_operator(host: Host, decide: str) -> None:
    runtime.use_approvals(host.service)
    main = host.load(f"""
        from democrai_osguard import sdk
        from democrai_osguard.approvals import Operator

        def main(target):
            answer = sdk.access.check_external_access(
                resource_type="filesystem", operation="read", target=target)
            try:
                sdk.access.{decide}(answer.request_id, Operator("ann", super_role=True))
            except PermissionError as error:
                return error.code
    """)
    with host.guard(user_id="ann", organization_id=None):
        assert main(host.outside / "file") == "external_access_admin_required"
    (request,) = host.service.list_requests()
    assert request.state == "pending"
    # Without a guard the same call decides.
    assert getattr(sdk.access, decide)(request.id, ANN).applied


@pytest.mark.parametrize(
    "who",
    [Operator("bob"), Operator("bob", organization_id=3, super_role=True), "ann", None],
)
def test_only_an_operator_decides(host: Host, who: Any) -> None:  # noqa: ANN401 - or anything
    runtime.use_approvals(host.service)
    request_id = asked(host).request_id
    assert request_id is not None
    with pytest.raises(AdminRequired):
        sdk.access.approve_permanently(request_id, who)
    assert host.service.get(request_id).state == "pending"


@pytest.mark.parametrize(
    "decide",
    [
        sdk.access.approve_for_session,
        sdk.access.approve_permanently,
        sdk.access.deny_external_access,
    ],
)
def test_nobody_is_no_operator(host: Host, decide: Callable[[str], object]) -> None:
    runtime.use_approvals(host.service)
    request_id = asked(host).request_id
    assert request_id is not None
    with pytest.raises(AdminRequired):
        decide(request_id)
    with host.guard(), pytest.raises(AdminRequired):
        decide(request_id)
    assert host.service.get(request_id).state == "pending"


def test_a_request_without_a_session_is_not_approved_for_one(host: Host) -> None:
    runtime.use_approvals(host.service)
    request_id = asked(host, session_key=None).request_id
    assert request_id is not None
    with pytest.raises(SessionKeyRequired, match="external_access_session_key_required"):
        sdk.access.approve_for_session(request_id, ANN)
    assert host.service.get(request_id).state == "pending"


def test_a_resume_context_is_for_the_application_and_nobody_else(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    with host.guard():
        answer = main("filesystem", "read", host.outside / "file",
                      resume_action="again", resume_context={"word": "top-secret"})  # fmt: skip
    assert "top-secret" not in repr(answer)
    files = [each for each in (host.folder / "state").rglob("*") if each.is_file()]
    assert not any(b"top-secret" in each.read_bytes() for each in files)
    seen: list[Any] = []
    sdk.access.approve_permanently(answer.request_id, ANN)
    run_resumes(host.service, {"again": seen.append})
    assert seen[0].context == {"word": "top-secret"}
    assert (seen[0].origin.user_id, seen[0].origin.session_key) == ("7", "s-1")


@pytest.mark.parametrize(
    "context", [{"a": object()}, {"a": float("nan")}, {1, 2}, {"a": "x" * 100_000}, 5]
)
def test_a_resume_context_that_is_no_small_document_is_an_error(
    host: Host, context: object
) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    target = host.outside / "file"
    with host.guard(), pytest.raises((RuntimeError, ValueError, TypeError)):
        main("filesystem", "read", target, resume_action="a", resume_context=context)
    with host.guard(), pytest.raises(ContractError):
        main("filesystem", "read", target, resume_context={})
    assert host.service.list_requests() == []


ATTACKS = {
    "a patched asker": "import democrai_osguard.runtime.desk as d; d.Desk.__call__ = YES",
    "a patched service": (
        "import democrai_osguard.approvals.verdicts as v\n"
        "v.ActivationVerdicts.session_approval = YES"
    ),
    "a patched decision": "import democrai_osguard.runtime.desk as d; d.decide = ALLOW",
    "a shadowed builtin": "import democrai_osguard.runtime.desk as d; d.isinstance = YES",
    "a changed builtin": "import builtins; builtins.isinstance = YES",
    "a class in between": (
        "import democrai_osguard.approvals.verdicts as v\n"
        "v.ActivationVerdicts.__getattribute__ = lambda self, name: YES"
    ),
    "another base": (
        "import democrai_osguard.approvals.verdicts as v\n"
        "names = {'__slots__': (), 'denial': lambda *a: None, 'session_approval': YES}\n"
        "v.ActivationVerdicts.__bases__ = (type('Yes', v.ActivationVerdicts.__bases__, names),)"
    ),
    "one that puts itself right": (
        "import democrai_osguard.runtime.desk as d\n"
        "right = d.Desk.__call__\n"
        "def once(*args):\n    d.Desk.__call__ = right\n    return True\n"
        "d.Desk.__call__ = once"
    ),
    "swapped names": (
        "import democrai_osguard.runtime.desk as d\n"
        "space, others = vars(d), {'Allow': 'RequiresApproval', 'RequiresApproval': 'Allow'}\n"
        "items = list(space.items())\n"
        "space.clear()\n"
        "space.update((others.get(name, name), value) for name, value in items)"
    ),
    "deleted code": "import democrai_osguard.runtime.desk as d; del d.Desk.__call__, d.Desk.check",
    "another asker": "from democrai_osguard import runtime; runtime.use_approvals(None)",
    "the desk": (
        "from democrai_osguard.guard.installation import doors\n"
        "won.append(doors['approvals']().service)"
    ),
    "the bypass": (
        "from democrai_osguard import process_guard_bypass_context as b\n"
        "with b(): won.append(open(TARGET).read())"
    ),
    "changed code": (
        "import democrai_osguard.runtime.desk as d\nd.Desk.__call__.__code__ = YES.__code__"
    ),
    "changed defaults": (
        "from democrai_osguard.policy.ruleset import RuleSet\n"
        "RuleSet.__init__.__kwdefaults__['wide'] = True\nwon.append('defaults')"
    ),
    "a false door": (
        "from democrai_osguard.guard import contexts\n"
        "contexts.current_guard = lambda: None\n"
        "import democrai_osguard.sdk.access as a\n"
        "a.doors = {'external_access': lambda *q: (True, False, 'session_approval', '', None)}"
    ),
    "the store": "open(STATE + '/approvals/approvals.sqlite3', 'rb'); won.append('store')",
    "the key": "open(STATE + '/keys/resume.keys', 'rb'); won.append('key')",
    "the audit log": "open(STATE + '/audit/audit.jsonl', 'a'); won.append('log')",
}
MODULE = """
def YES(*args, **kwargs): return True

def ALLOW(*args, **kwargs):
    from democrai_osguard import Allow, Rule, Subject
    return Allow("sandbox_allowed", Rule.of("filesystem", "read", "/"), Subject.parse("core:core"))

def main(TARGET, STATE):
    won = []
    try:
        attack(TARGET, STATE, won)
    except Exception:
        pass
    try:
        won.append(open(TARGET).read())
    except Exception:
        pass
    return won
"""


@pytest.mark.parametrize("attack", ATTACKS)
def test_guarded_code_does_not_change_its_own_answer(host: Host, attack: str) -> None:
    runtime.use_approvals(host.service)
    asked(host)
    body = "\n".join(f"    {line}" for line in ATTACKS[attack].splitlines())
    main = host.load(f"{MODULE}\ndef attack(TARGET, STATE, won):\n{body}\n")
    with host.guard():
        won = main(str(host.outside / "file"), str(host.folder / "state"))
    assert won == []
    (request,) = host.service.list_requests()
    assert request.state == "pending"
    # Afterwards the answers are right again, and an approval is one.
    host.service.approve_permanently(request.id, ANN)
    read = host.load(READ)
    with host.guard():
        assert read(str(host.outside / "file")) == "secret"


def test_a_patched_asker_would_open_everything_if_nobody_looked(host: Host) -> None:
    from democrai_osguard.runtime.desk import Desk  # noqa: PLC0415 - in the child only

    Desk.__call__ = lambda *_args: True  # type: ignore[method-assign]
    runtime.use_approvals(host.service)  # now it counts as the code that answers
    read = host.load(READ)
    with host.guard():
        assert read(str(host.outside / "file")) == "secret"


def test_whoever_answers_works_on_files_of_its_own_below_extension_code(host: Host) -> None:
    secret = host.outside / "file"
    asked_about: list[str] = []

    class Service:
        def denial(self, _request: object) -> None:
            return None

        session_approval = denial

        def permanent_approval(self, request: AccessRequest) -> Rule | None:
            asked_about.append(request.target)
            with open(secret, encoding="utf-8") as file:  # few calls away from the extension
                return request.rule if file.read() == "secret" else None

        def refused(self, request: object, chain: object) -> None:
            """Note nothing."""

    use_approvals(Service())
    main = host.load("import os\ndef main(path): return os.stat(path).st_size")
    asked_about.clear()  # importing may ask whether bytecode can be kept
    with host.guard():
        assert main(str(secret)) == 6
    assert asked_about == [str(secret)]  # once: nobody asked about the answer's own file
