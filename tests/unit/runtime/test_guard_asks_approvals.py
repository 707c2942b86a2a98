"""What a person decided counts inside a guard, and what the guard refuses can be decided."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# In a process of its own: the service stays registered for the rest of it.
_SCRIPT = """
import socket, sys
from democrai_osguard import ApprovalService, open_store, runtime
from democrai_osguard.approvals.records import Operator

service = ApprovalService(open_store("sqlite://" + sys.argv[1]))
runtime.use_approvals(service)
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]

def attempt():
    with runtime.module_context("notes", session_key="s-1"):
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except PermissionError as error:
            return str(error)
    return "connected"

print(attempt())
(asked,) = service.list_requests()
print(asked.subject, asked.rule.operation, asked.rule.target == f"localhost:{port}")
service.approve_for_session(asked.id, Operator("ann", super_role=True))
print(attempt())
service.deny(asked.id, Operator("ann", super_role=True), overrule=True)
print(attempt())
"""


def test_a_refused_connection_is_asked_for_and_an_approval_opens_it(tmp_path: Path) -> None:
    store = f"{tmp_path}/state/approvals.sqlite3"
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, store], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    refused, asked, approved, denied = done.stdout.splitlines()
    assert refused.startswith("sandbox_network_denied:notes:connect:")
    assert asked == "module:notes connect True"
    assert approved == "connected"
    assert denied.startswith("sandbox_network_denied:notes:connect:")
