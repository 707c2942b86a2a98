"""What must hold of parts that keep something: the audit log, and the page with its store."""

# ruff: noqa: D401 - a check is described by what must hold

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import httpx
from approvals.cases import ADA, read
from web.serving import SECRET

from democrai_osguard.approvals import ApprovalService, Resume, open_store
from democrai_osguard.approvals.keys import KeyFile
from democrai_osguard.approvals.vault import Vault
from democrai_osguard.audit import AuditLog
from democrai_osguard.audit.verify import verify
from democrai_osguard.ui.doorkeeper import HEADERS
from democrai_osguard.ui.gate import Gate
from democrai_osguard.ui.page import COOKIE, TOKEN_HEADER, Page

_ORIGIN = "http://127.0.0.1:1234"
_RECORDS = 12


def _lasting_folder(prefix: str) -> str:
    """Return a folder that goes when this process ends."""
    folder = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _whole_log() -> str:
    folder = _lasting_folder("fuzz-log-")
    log = AuditLog(folder, rotate_bytes=4096, keep_files=3)
    for number in range(4 * _RECORDS):
        log.record("decided", {"who": f"someone {number}", "why": "x" * 200}, durable=False)
    assert verify(folder).sound
    return folder


class ChangedLog:
    """A sound log with full files and a pruned start, copied and damaged for each case."""

    def __init__(self) -> None:
        self._folder = _whole_log()

    def __call__(self, case: tuple[int, int, int, bytes]) -> None:
        """Whatever is cut out of a log or written over it is noticed."""
        which, start, length, put = case
        with tempfile.TemporaryDirectory(prefix="fuzz-log-") as folder:
            copy = shutil.copytree(self._folder, os.path.join(folder, "log"))
            files = sorted(Path(copy).glob("*.jsonl"))
            file = files[which % len(files)]
            whole = file.read_bytes()
            start %= len(whole) + 1
            changed = whole[:start] + put + whole[start + length :]
            file.write_bytes(changed)
            assert verify(copy).sound is (changed == whole)


class FuzzedPage:
    """The real application on a real store, asked by somebody who may and somebody who may not."""

    def __init__(self) -> None:
        folder = _lasting_folder("fuzz-page-")
        vault = Vault(KeyFile(f"{folder}/keys/resume.keys"))
        store = open_store(f"sqlite://{folder}/store/approvals.sqlite3")
        self.service = ApprovalService(store, vault=vault, audit=AuditLog(f"{folder}/audit"))
        gate = Gate([_ORIGIN])
        visit = gate.enter(gate.new_link())
        assert visit is not None
        self._allowed = {
            "cookie": f"{COOKIE}={visit.cookie}",
            TOKEN_HEADER: visit.token,
            "origin": _ORIGIN,
            "content-type": "application/json",
        }
        self._page = Page(self.service, ADA, gate).application()

    def __call__(self, case: tuple[str, str, object, dict[str, str], bool]) -> None:
        """An answer is never a crash, has every header and no secret; a stranger gets nothing."""
        method, path, body, headers, allowed = case
        resume = Resume("again", {"password": SECRET})
        self.service.register(read("/srv/a"), resume=resume)
        before = len(self.service.list_decisions())
        sent = {"host": "127.0.0.1:1234", **(self._allowed if allowed else {}), **headers}
        answer = asyncio.run(self._ask(method, path, body, sent))
        assert answer.status_code != httpx.codes.INTERNAL_SERVER_ERROR, answer.text
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert SECRET not in answer.text
        if not allowed:
            assert not (path.startswith("/api") and answer.is_success)
            assert len(self.service.list_decisions()) == before

    async def _ask(self, method: str, path: str, body: object, headers: Any) -> httpx.Response:  # noqa: ANN401 - any headers
        transport = httpx.ASGITransport(self._page, raise_app_exceptions=True)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with httpx.AsyncClient(transport=transport, base_url=_ORIGIN) as client:
            return await client.request(method, path, content=content, headers=headers)
