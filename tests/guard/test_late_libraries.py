"""Libraries that come after the guard: patched when they arrive, and loaded by nobody else."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# What the guard stands in front of, by library: one attribute of each.
LATE = {
    "requests": ("requests.adapters", "HTTPAdapter", "send"),
    "urllib3": ("urllib3.connectionpool", "HTTPConnectionPool", "urlopen"),
    "httpx": ("httpx", "HTTPTransport", "handle_request"),
    "aiohttp": ("aiohttp.connector", "BaseConnector", "connect"),
    "websockets": ("websockets.sync.connection", "Connection", "send"),
}
_SCRIPT = """
import importlib, json, sys
from democrai_osguard.guard import install
module, owner, name = json.loads(sys.argv[1])
if sys.argv[2] == "guarded":
    install()
loaded = [root for root in json.loads(sys.argv[3]) if root in sys.modules]
method = getattr(getattr(importlib.import_module(module), owner), name)
print(json.dumps([loaded, hasattr(method, "democrai_osguard")]))
"""


def _found(library: str, state: str) -> list[object]:
    arguments = [json.dumps(LATE[library]), state, json.dumps(sorted(LATE))]
    command = [sys.executable, "-c", _SCRIPT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


@pytest.mark.parametrize("library", LATE)
def test_a_library_is_patched_when_it_arrives(library: str) -> None:
    pytest.importorskip(library)
    assert _found(library, "free") == [[], False]
    assert _found(library, "guarded") == [[], True]
