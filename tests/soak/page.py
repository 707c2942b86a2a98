"""The approval page under load: people decide on it, and it is killed at times."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import httpx
from soak.footprint import Footprint
from web.serving import Serving

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from soak.span import Span

DECIDED, KILLED = "decisions on the page", "pages killed"
_SCOPES = ("permanent", "denied", "session")
_PATIENCE = 60.0
_SETTLING = 30.0  # seconds: by then a new server has found the helper and follows it


def page(folder: Path, span: Span, chance: random.Random) -> Counter[str]:
    """Ask, answer on the page, revoke there; it follows the helper that another part kills."""
    os.environ["DEMOCRAI_OS_HELPER_SOCKET"] = str(folder.parent / "egress/helper.sock")
    done: Counter[str] = Counter()
    with (folder / "acknowledged").open("a", buffering=1) as acknowledged:

        def count(number: int) -> None:
            acknowledged.write(f"{number}\n")
            done[DECIDED] += 1

        while True:
            visit = _Visit(Serving(folder / "state"), count)
            try:
                visit.last(span, chance)
            except httpx.TransportError:
                assert visit.is_killed(), "the page fell silent"
                done[KILLED] += 1
            finally:
                visit.end()
            if span.is_over():
                return done


class _Visit:
    """A browser's session with one server."""

    def __init__(self, serving: Serving, count: Callable[[int], None]) -> None:
        self._serving, self._count = serving, count
        self._client = httpx.Client(base_url=serving.origin, trust_env=False, timeout=_PATIENCE)
        text = self._client.get(serving.link).raise_for_status().text
        token = text.partition('name="visit-token" content="')[2].partition('"')[0]
        self._headers = {"X-Osguard-Token": token, "Origin": serving.origin}

    def last(self, span: Span, chance: random.Random) -> None:
        """Decide until the time is up or the server is killed; one that lasts must not grow."""
        process, footprint = self._serving.process, None
        settled = time.monotonic() + _SETTLING
        self._settle()
        while True:
            killed = span.kills(chance, 20)
            if killed:
                threading.Timer(chance.uniform(0, 0.2), process.kill).start()
            for scope in _SCOPES:
                self._decide(f"/srv/page/{chance.getrandbits(64)}", scope)
            if killed:
                process.wait()  # the next call finds nobody
            elif span.is_over():
                break
            elif time.monotonic() > settled:
                footprint = footprint or Footprint.of(process.pid)
        if footprint is not None:
            footprint.must_not_have_grown(process.pid, "the page")

    def _settle(self) -> None:
        """Deny what was left open by a server that was killed, but not what another part asks."""
        for left in self._serving.service.list_requests():
            if left.rule.resource_type == "filesystem":
                self._answer(left.id, "denied")

    def _decide(self, target: str, scope: str) -> None:
        said = self._answer(self._serving.ask(target).id, scope)
        self._call("revoke", {"decision": said})  # else what it lists grows, and it with that

    def _answer(self, request: str, scope: str) -> int:
        resource = self._serving.service.get(request).document()["resource"]
        return self._call("decide", {"request": request, "scope": scope, "resource": resource})

    def _call(self, name: str, body: dict[str, object]) -> int:
        answer = self._client.post(f"/api/{name}", json=body, headers=self._headers)
        number: int = answer.raise_for_status().json()["decision"]
        self._count(number)
        return number

    def is_killed(self) -> bool:
        """Tell whether the server died of a kill, and of nothing else."""
        return self._serving.process.wait(_PATIENCE) == -signal.SIGKILL

    def end(self) -> None:
        """End the server, if it is there, and the session."""
        self._client.close()
        self._serving.stop()
