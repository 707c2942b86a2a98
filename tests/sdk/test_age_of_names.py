"""`sandbox.os.refresh_seconds` reaches the helper with every child that has network rules."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final

import pytest

from democrai_osguard_launcher import egress
from democrai_osguard_launcher.errors import NotEnforced

if TYPE_CHECKING:
    from pathlib import Path

_APPLICATION: Final = """
import asyncio, os, sys
from democrai_osguard import runtime, sdk

async def main():
    python = os.path.realpath(sys.executable)
    access = [
        {"resource_type": "network", "operation": "connect", "target": "api.example.com:443"},
        {"resource_type": "filesystem", "operation": "execute", "target": python},
    ]
    with runtime.module_context("notes", {"access": access}):
        await sdk.tasks.run_subprocess(python, "-I", "-c", "pass")

asyncio.run(main())
"""


def _asked(listener: socket.socket, found: list[object]) -> None:
    """Be a helper that writes down what it is asked and answers nothing."""
    while True:
        try:
            stream = listener.accept()[0]
        except OSError:
            return
        with stream, stream.makefile("rb") as file:
            size = int.from_bytes(file.read(4), "big")
            asked = json.loads(file.read(size)) if size else {}
            if asked.get("call") == "confine":
                found.append(asked.get("refresh"))


@pytest.mark.needs("landlock", "seccomp")
@pytest.mark.parametrize(("setting", "sent"), [(None, 60), ("7", 7), ("1", 5), ("1e8", 3600)])
def test_the_setting_goes_with_the_request_within_the_helper_s_bounds(
    tmp_path: Path, setting: str | None, sent: int
) -> None:
    path, found = str(tmp_path / "helper.sock"), list[object]()
    config = tmp_path / "osguard.toml"
    line = "" if setting is None else f"refresh_seconds = {setting}\n"
    config.write_text(f'[sandbox.os]\nhelper_socket = "{path}"\n{line}')
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=_asked, args=(listener, found))
        thread.start()
        done = subprocess.run(
            [sys.executable, "-c", _APPLICATION],
            env={**os.environ, "DEMOCRAI_CONFIG": str(config)},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert "the helper did not hold the network rules" in done.stderr
    assert sent in found
    assert set(found) == {sent}


@pytest.mark.parametrize("text", ["soon", "nan", "5s"])
def test_what_is_no_number_of_seconds_starts_nothing(text: str) -> None:
    with pytest.raises(NotEnforced, match="REFRESH_SECONDS: expected a number of seconds"):
        egress.refresh_seconds(text)
    assert egress.refresh_seconds(None) is None
