"""An application whose module imports a file: blocked, asked for, and resumed after approval.

Called as `python importing_application.py FILE`; prints what happens, one line each.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from democrai_osguard import current_guard, runtime, sdk
from democrai_osguard.approvals import open_service

if TYPE_CHECKING:
    from democrai_osguard.approvals import ResumeCall
    from democrai_osguard.guard import process_guard_context

FILE = sys.argv[1]


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - it speaks to the test


def read() -> str:
    try:
        with open(FILE, encoding="utf-8") as file:
            return file.read()
    except PermissionError as error:
        return str(getattr(error, "code", error))


def guard_of(call: ResumeCall) -> process_guard_context:
    return runtime.module_context(call.subject.name, **asdict(call.origin))


def resume(call: ResumeCall) -> None:
    info = current_guard()
    assert info is not None
    say("resumed", info.subject, info.user_id, info.session_key, call.context["row"], read())


service = open_service()
runtime.use_approvals(service)
runtime.Resumer(service, {"notes.resume_import": resume}, guard_of).start()
with runtime.module_context("notes", user_id="7", session_key="s-1"):
    say("blocked", read())
    answer = sdk.access.require_external_access(
        resource_type="filesystem", operation="read", target=FILE,
        resume_action="notes.resume_import", resume_context={"row": 3},
    )  # fmt: skip
say("asked", answer.code, answer.request_id)
time.sleep(3600)  # the test ends it
