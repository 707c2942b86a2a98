"""A small application that hosts code which it does not trust, step by step.

Run it with `make example`. Everything happens in a temporary folder and on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import mcp
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from operator_desk import Page, command_line

from democrai_osguard import current_guard, runtime
from democrai_osguard.approvals import open_service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from democrai_osguard.approvals import ApprovalService, ResumeCall
    from democrai_osguard.guard import process_guard_context

EXTENSIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "extensions")
NOTES = os.path.join(EXTENSIONS, "notes")
COUNTER = os.path.join(EXTENSIONS, "counter")
_PATIENCE = 60.0


def say(text: str) -> None:
    """Print a line in one piece, and who acts where somebody does: others print meanwhile."""
    guard = current_guard()
    chain = "the host" if guard is None else " > ".join(map(str, guard.subject_chain))
    print(f"  [{chain}] {text}\n", end="", flush=True)


def attempt(act: Callable[[], object]) -> None:
    """Try something, and say what became of it."""
    try:
        say(f"allowed: {act()}")
    except PermissionError as refusal:
        say(f"refused: {refusal}")


def notes_guard(**identity: Any) -> process_guard_context:  # noqa: ANN401 - who asks
    """Return the guard of the module, from its manifest."""
    return runtime.module_context("notes", f"{NOTES}/manifest.json", folder=NOTES, **identity)


def load(folder: str, name: str) -> Any:  # noqa: ANN401 - a module
    """Load an extension; called inside its guard."""
    sys.path.insert(0, folder)
    return importlib.import_module(name)


class Web(BaseHTTPRequestHandler):
    """A server of this machine, for the engine and the tool."""

    def do_GET(self) -> None:
        """Answer with five letters."""
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


class Host:
    """The application: its approvals, its extensions, and what it does with them."""

    def __init__(self, folder: str, service: ApprovalService) -> None:
        self.service = service
        self.import_target = os.path.join(folder, "customer.csv")
        self.resumed = threading.Event()
        with open(self.import_target, "w", encoding="utf-8") as file:
            file.write("ada,1815")
        runtime.use_approvals(service)
        with notes_guard():
            self.notes = load(NOTES, "notes")
        with runtime.engine_context("counter", f"{COUNTER}/manifest.json", folder=COUNTER):
            self.counter = load(COUNTER, "counter")
        actions = {"notes.resume_import": self._resume_import}
        runtime.Resumer(service, actions, self._guard_of).start()
        web = ThreadingHTTPServer(("127.0.0.1", 0), Web)
        threading.Thread(target=web.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{web.server_port}/"

    def module(self) -> None:
        """Show what a module declares, what it does not, and how it asks for more."""
        with notes_guard(user_id="7", session_key="s-1"):
            attempt(lambda: self.notes.read(f"{NOTES}/inbox/today.txt"))
            attempt(lambda: self.notes.read(self.import_target))
            answer = self.notes.import_file(self.import_target)
            say(f"asked for it: {answer.code}, request {answer.request_id}")
        say("the operator approves it on the command line, and the import goes on by itself")
        code, line = command_line("requests", "approve", answer.request_id, "--scope", "session")
        say(f"the command line said: {line} (exit code {code})")
        if not self.resumed.wait(_PATIENCE):
            raise RuntimeError("nothing was resumed")

    def engine(self) -> None:
        """Show an engine that reaches the URL of its configuration, and no other."""
        other = self.url.replace("127.0.0.1", "192.0.2.1")
        manifest = f"{COUNTER}/manifest.json"
        settings = {"server": self.url}
        with runtime.engine_context("counter", manifest, folder=COUNTER, config=settings):
            attempt(lambda: self.counter.count(self.url))
            attempt(lambda: self.counter.count(other))

    def tool(self) -> None:
        """Show a tool at the end of a chain, and an approval on the page."""
        self._run_tool()
        page = Page()
        try:
            (asked,) = [each for each in page.waiting() if each["subject"]["type"] == "tool"]
            say(f"the page shows: {asked['label']} by {' > '.join(asked['chain'])}")
            say(f"the operator, on the page: approved {page.approve(asked, 'session')}")
        finally:
            page.close()
        self._run_tool()

    def mcp(self) -> None:
        """Show an MCP server: checked before it is contacted, and then it alone."""
        with running_adder() as rehearsal:
            # Nothing can be read inside, so what the client imports late is imported now.
            asyncio.run(add(rehearsal, create_mcp_http_client()))
        with running_adder() as endpoint:
            self._contact(endpoint)
            (asked,) = [each for each in self.service.list_requests() if each.subject.type == "mcp"]
            code, line = command_line("requests", "approve", asked.id, "--scope", "session")
            say(f"the operator, on the command line: {line} (exit code {code})")
            self._contact(endpoint)

    def task(self) -> None:
        """Show scheduled work: it has no session, so it is approved for good or not at all."""
        with runtime.task_context("notes", f"{NOTES}/manifest.json", folder=NOTES, user_id="7"):
            answer = self.notes.ask_to_send("https://reports.example.com/weekly")
            say(f"asked: {answer.code}")
        for scope in ("session", "permanent"):
            code, line = command_line("requests", "approve", answer.request_id, "--scope", scope)
            say(f"the operator, for {scope}: {line} (exit code {code})")
        with runtime.task_context("notes", f"{NOTES}/manifest.json", folder=NOTES, user_id="7"):
            say(f"asked again: {self.notes.ask_to_send('https://reports.example.com/weekly').code}")

    def child(self) -> None:
        """Show a child process, which the kernel holds to the same rules."""
        with notes_guard(session_key="s-9"):
            for path in (f"{NOTES}/inbox/today.txt", self.import_target):
                code, text = self.notes.show(path)
                say(f"cat {os.path.basename(path)}: exit code {code}, {text.rpartition('/')[2]}")

    def _run_tool(self) -> None:
        with (
            notes_guard(user_id="7", session_key="s-1"),
            runtime.pipeline_context("digest"),
            runtime.agent_context("reader"),
            runtime.tool_context("fetch"),
        ):
            attempt(lambda: self.notes.fetch(self.url))

    def _contact(self, endpoint: str) -> None:
        http = create_mcp_http_client()  # its certificates are the host's to read
        try:
            with runtime.contact_mcp("adder", endpoint, user_id="7", session_key="s-1"):
                say(f"2 + 3 = {asyncio.run(add(endpoint, http))}")
        except PermissionError as refusal:
            say(f"refused: {refusal}")

    def _resume_import(self, call: ResumeCall) -> None:
        say(f"resumed for user {call.origin.user_id}: {self.notes.resume_import(call.context)}")
        self.resumed.set()

    def _guard_of(self, call: ResumeCall) -> process_guard_context:
        return notes_guard(**asdict(call.origin))  # as whoever asked, in every respect


@contextlib.contextmanager
def running_adder() -> Iterator[str]:
    """Run the MCP server while the block lasts; return its endpoint."""
    command = [sys.executable, os.path.join(EXTENSIONS, "adder.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}/mcp"
        finally:
            server.kill()


async def add(endpoint: str, http: Any) -> str:  # noqa: ANN401 - the client of the mcp package
    """Let an MCP server add two numbers."""
    async with mcp.Client(streamable_http_client(endpoint, http_client=http)) as client:
        await client.list_tools()
        result = await client.call_tool("add", {"a": 2, "b": 3})
        return str(getattr(result.content[0], "text", ""))


def main() -> None:
    """Go through all of it."""
    with tempfile.TemporaryDirectory(prefix="osguard-example-") as made:
        folder = os.path.realpath(made)
        for name in ("STATE", "TEMP", "DATA", "CACHE"):
            os.environ[f"DEMOCRAI_{name}_DIR"] = os.path.join(folder, name.lower())
            os.mkdir(os.path.join(folder, name.lower()), 0o700)
        host = Host(folder, open_service())
        steps = (host.module, host.engine, host.tool, host.mcp, host.task, host.child)
        for number, step in enumerate(steps, 1):
            print(f"\n{number}. {step.__doc__}", flush=True)
            step()


if __name__ == "__main__":
    main()
