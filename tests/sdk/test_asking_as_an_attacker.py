"""`sdk.access` under attack: guarded code that wants to be someone else, decide, or see more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sdk.asking import ASK, READ, asked
from sdk.host import ANN, Host

from democrai_osguard import runtime, sdk
from democrai_osguard.approvals import AdminRequired, Operator, SessionKeyRequired, run_resumes
from democrai_osguard.errors import ContractError
from democrai_osguard.guard import use_approvals

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.access import AccessRequest, Rule


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
