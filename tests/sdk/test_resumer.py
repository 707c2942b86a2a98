"""What waited behind an approval: once, inside a guard, with the requester's identity."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
from sdk.host import ANN, Host

from democrai_osguard import current_guard, runtime, sdk

if TYPE_CHECKING:
    from democrai_osguard.approvals import ResumeCall
    from democrai_osguard.guard import process_guard_context

ASK = """
from democrai_osguard import sdk

def main(target, action):
    return sdk.access.require_external_access(
        resource_type="filesystem", operation="read", target=target,
        resume_action=action, resume_context={"target": str(target)}).request_id
"""


def resumer(host: Host, seen: list[str], arrived: threading.Event) -> runtime.Resumer:
    def guard_of(call: ResumeCall) -> process_guard_context:
        return host.guard(**asdict(call.origin))

    def act(call: ResumeCall) -> None:
        info = current_guard()
        assert info is not None
        with open(str(call.context["target"]), encoding="utf-8") as file:
            who = info.user_id, info.organization_id, info.session_key, info.task_id
            seen.append(f"{info.subject} {who} {file.read()}")
        arrived.set()

    def fail(_call: ResumeCall) -> None:
        with open(host.outside / "other", encoding="utf-8") as file:
            file.read()

    (host.outside / "other").write_text("other")
    return runtime.Resumer(host.service, {"again": act, "beyond": fail}, guard_of)


@pytest.mark.parametrize("before", [True, False])
def test_it_runs_once_by_itself_as_whoever_asked(host: Host, before: bool) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    with host.guard(user_id=21, organization_id="acme", session_key="s-9", task_id="t-1"):
        request_id = main(host.outside / "file", "again")
    seen: list[str] = []
    arrived = threading.Event()
    running = resumer(host, seen, arrived)
    if before:  # approved while nobody was there to go on
        host.service.approve_for_session(request_id, ANN)
        running.start()
    else:
        running.start()
        host.service.approve_for_session(request_id, ANN)
    assert arrived.wait(60)
    running.stop()
    assert running.run() == []
    assert seen == ["module:notes (21, 'acme', 's-9', 't-1') secret"]
    assert host.service.get(request_id).resume_state == "done"


def test_a_denied_request_is_not_resumed(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    with host.guard():
        request_id = main(host.outside / "file", "again")
    host.service.deny(request_id, ANN)
    seen: list[str] = []
    assert resumer(host, seen, threading.Event()).run() == []
    assert seen == []


def test_an_action_does_no_more_than_its_subject_may(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    with host.guard():
        request_id = main(host.outside / "file", "beyond")
    host.service.approve_permanently(request_id, ANN)
    (ended,) = resumer(host, [], threading.Event()).run()
    assert ended.resume_state == "failed"


def test_an_action_that_nobody_knows_waits_for_somebody_who_does(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    with host.guard():
        request_id = main(host.outside / "file", "unknown")
    host.service.approve_permanently(request_id, ANN)
    assert resumer(host, [], threading.Event()).run() == []
    assert host.service.get(request_id).resume_state == "ready"


def test_an_asynchronous_action_is_run_to_its_end_inside_the_guard(host: Host) -> None:
    runtime.use_approvals(host.service)
    main = host.load(ASK)
    with host.guard():
        request_id = main(host.outside / "file", "later")
    host.service.approve_permanently(request_id, ANN)
    seen: list[str] = []

    def read(path: str) -> str:
        with open(path, encoding="utf-8") as file:
            return file.read()

    async def act(call: ResumeCall) -> None:
        await asyncio.sleep(0)
        text = await sdk.tasks.run_blocking(read, str(call.context["target"]))
        seen.append(f"{current_guard().subject} {text}")  # type: ignore[union-attr]
        with pytest.raises(PermissionError):
            read(str(host.outside / "other"))

    (host.outside / "other").write_text("other")
    running = runtime.Resumer(host.service, {"later": act}, lambda _call: host.guard())
    (ended,) = running.run()
    assert (ended.resume_state, seen) == ("done", ["module:notes secret"])
    running.stop()  # it was never started
