"""The person who decides: on the command line, and on the page as a browser would.

None of this is inside a guard, and none of the extensions can reach it.
"""

from __future__ import annotations

import http.cookiejar
import json
import re
import subprocess
import sys
import urllib.request
from typing import Any

_COMMAND = (sys.executable, "-m", "democrai_osguard.cli.main")


def command_line(*words: str) -> tuple[int, str]:
    """Run `democrai-osguard` and return its exit code and its first line."""
    done = subprocess.run((*_COMMAND, *words), capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, lines[0] if lines else ""


class Page:
    """`democrai-osguard serve`, opened by the link that it prints."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            (*_COMMAND, "serve"), stdout=subprocess.PIPE, text=True, bufsize=1
        )
        link = self._link()
        self._origin = link.partition("/?")[0]
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._browser = urllib.request.build_opener(urllib.request.ProxyHandler({}), jar)
        page = self._browser.open(link, timeout=60).read().decode()
        self._token = page.partition('name="visit-token" content="')[2].partition('"')[0]

    def waiting(self) -> list[dict[str, Any]]:
        """Return the requests that the page shows."""
        shown: dict[str, list[dict[str, Any]]] = self._call("/api/state")
        return shown["pending"]

    def approve(self, request: dict[str, Any], scope: str) -> bool:
        """Click the button of a scope, for the rule that the page shows."""
        words = {"request": request["id"], "scope": scope, "resource": request["resource"]}
        return bool(self._call("/api/decide", words)["applied"])

    def close(self) -> None:
        """Close the page and its server."""
        self._server.terminate()
        self._server.wait()
        if self._server.stdout is not None:
            self._server.stdout.close()

    def _call(self, path: str, body: object = None) -> Any:  # noqa: ANN401 - a JSON document
        headers = {"X-Osguard-Token": self._token, "Origin": self._origin}
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(  # noqa: S310 - our own page
            self._origin + path, data, {**headers, "Content-Type": "application/json"}
        )
        with self._browser.open(call, timeout=60) as answer:
            return json.loads(answer.read())

    def _link(self) -> str:
        for line in self._server.stdout or ():
            found = re.search(r"http://\S+\?token=\S+", line)
            if found:
                return found.group()
        raise RuntimeError("the page printed no link")
