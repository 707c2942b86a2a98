"""Runs inside the machine: does what the test outside asks for, one line of JSON each way.

It speaks over a virtio port, so that no network, no shell on a console and no login is needed,
and so that tests may flush every firewall. It trusts whoever holds the other end.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time


def main(port: str) -> None:
    """Answer until the machine ends."""
    descriptor = os.open(port, os.O_RDWR | os.O_CLOEXEC)
    waiting = b""
    while True:
        piece = os.read(descriptor, 65536)
        if not piece:  # nobody holds the other end yet
            time.sleep(0.05)
            continue
        *lines, waiting = (waiting + piece).split(b"\n")
        for line in filter(None, lines):
            _say(descriptor, _answer(json.loads(line)))


def _answer(request: dict[str, object]) -> dict[str, object]:
    user = str(request["user"])
    words = ["sh", "-c", str(request["command"])]
    if user != "root":
        words = ["runuser", "-u", user, "--", *words]
    # Not every systemd tells a service where its user is at home.
    environment = os.environ | {"HOME": pwd.getpwnam(user).pw_dir}
    seconds = request["seconds"]
    assert isinstance(seconds, int | float)
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            check=False, timeout=seconds, cwd="/", env=environment,
        )  # fmt: skip
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        code, output = 124, error.output or b""
    said = output.decode(errors="replace")
    return {"id": request["id"], "code": code, "output": said}


def _say(descriptor: int, answer: dict[str, object]) -> None:
    view = memoryview(json.dumps(answer).encode() + b"\n")
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    main(sys.argv[1])
