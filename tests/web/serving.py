"""The page as an operator starts it, and requests to show on it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from approvals.command import COMMAND

from democrai_osguard import Subject
from democrai_osguard.access import AccessRequest, Operation, ResourceType
from democrai_osguard.approvals import ApprovalService, Origin, Resume, open_service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from democrai_osguard.approvals import PendingRequest

_MODULE, _TOOL = Subject.parse("module:notes"), Subject.parse("tool:notes.reader")
SECRET = "hunter2-in-the-context"  # noqa: S105 - what must never show


class Serving:
    """`democrai-osguard serve` in a process of its own, and its store."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.keeps_pictures = "OSGUARD_KEEP_PICTURES" in os.environ
        os.environ["DEMOCRAI_STATE_DIR"] = str(state)
        self.service: ApprovalService = open_service()
        self.process = subprocess.Popen(
            [*COMMAND, "serve"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.link = self.next_link()
        self.origin = self.link.partition("/?")[0]

    def next_link(self) -> str:
        """Return the next link that is printed."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = re.search(r"http://\S+\?token=\S+", line)
            if found:
                return found.group()
        self.stop()
        raise AssertionError("no link was printed")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.service.close()

    def halt(self) -> None:
        """End the server, not the store."""
        self.process.terminate()
        self.process.wait(10)

    def request(self, target: str, session: str | None = "sess-1") -> AccessRequest:
        """Return what a tool may ask for: a path to read, or a URL to send to."""
        if "://" in target:
            return AccessRequest(_TOOL, ResourceType.NETWORK, Operation.SEND, target, session)
        return AccessRequest(_TOOL, ResourceType.FILESYSTEM, Operation.READ, target, session)

    def ask(
        self, target: str, *, session: str | None = "sess-1", resume: bool = False
    ) -> PendingRequest:
        """Register a request of a tool that a module runs."""
        return self.service.register(
            self.request(target, session),
            Origin(21, None, session, "task-123"),
            chain=(_MODULE, _TOOL),
            resume=Resume("notes.resume", {"password": SECRET}) if resume else None,
        )

    @contextlib.contextmanager
    def launched(self, subject: str) -> Iterator[None]:
        """Run a process under the launcher until it is confined."""
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-m", "democrai_osguard_launcher", "--subject", subject),
                *("--read", "/", "--execute", "/", "--", "sh", "-c", "echo up; exec sleep 600"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield
        finally:
            process.kill()
            process.communicate()

    @contextlib.contextmanager
    def sandboxed(self, engine: str) -> Iterator[None]:
        """Run a process whose environment says that it is a sandbox."""
        names = {"DEMOCRAI_NETWORK_SUBJECT": engine, "DEMOCRAI_NETWORK_SUBJECT_KIND": "engine"}
        process = subprocess.Popen(["sleep", "60"], env={**os.environ, **names})
        try:
            yield
        finally:
            process.kill()
            process.wait()
