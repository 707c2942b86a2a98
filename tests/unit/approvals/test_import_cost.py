"""Importing approvals stays small: modules are counted, not milliseconds."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEVER_LOADS = {
    "democrai_osguard.approvals": {
        *("click", "starlette", "uvicorn", "asyncio", "cryptography", "psycopg", "sqlite3"),
        *("subprocess", "urllib", "ctypes", "idna", "wcmatch", "socket"),
    },
    "democrai_osguard.audit": {"click", "sqlite3", "socket", "subprocess", "democrai_osguard.ui"},
    "democrai_osguard.cli.requests": {"starlette", "uvicorn", "asyncio", "cryptography", "psycopg"},
    "democrai_osguard.cli.serve": {"starlette", "uvicorn", "asyncio", "cryptography", "psycopg"},
}


@pytest.mark.parametrize("module", NEVER_LOADS)
def test_importing_it_stays_small(module: str) -> None:
    script = (
        f"import sys; before = set(sys.modules)\nimport {module}\nprint(*set(sys.modules) - before)"
    )
    python = [sys.executable, "-c", script]
    loaded = subprocess.run(python, capture_output=True, text=True, check=True).stdout.split()
    assert module in loaded
    assert NEVER_LOADS[module].isdisjoint(loaded)
