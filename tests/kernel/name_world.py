"""Commands that name hosts, beside a name server that says what the test wants.

Run as a program where networks and mounts are its own, with a `resolv.conf` that names 127.0.0.1.
It prints what came of each act as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading

PORT = 8080
GOOD, OTHER, LATER, PRIVATE = "192.0.2.1", "192.0.2.2", "192.0.2.3", "10.9.9.9"
GOOD6 = "2001:db8::1"
ADDRESSES = (GOOD, OTHER, LATER, PRIVATE, GOOD6)
OSGUARD = (sys.executable, "-I", "-m", "democrai_osguard.cli.main")
_A, _AAAA, _HEADER = 1, 28, 12
_SECONDS = 60

# Each word is a host; it says what came of connecting there. The others are ways to look up.
DIAL = """
import errno, socket, sys
def said(host):
    try:
        socket.create_connection((host, 8080), 30).close()
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    return "ok"
print(*map(said, sys.argv[1:]))
"""
BY_OLD_CALL = """
import errno, socket, sys
address = socket.gethostbyname(sys.argv[1])
print(errno.errorcode.get(socket.socket().connect_ex((address, 8080)), "ok"))
"""
# Claims that a name below the suffix means another machine, in every way that it has.
FORGE = """
import errno, socket, struct, sys
def name(text):
    return b"".join(bytes([len(each)]) + each.encode() for each in text.split(".")) + bytes(1)
asked = name("forged.wild.test") + struct.pack(">HH", 1, 1)
question = struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + asked
answer = struct.pack(">6H", 7, 0x8180, 1, 1, 0, 0) + asked
answer += struct.pack(">HHHIH4s", 0xC00C, 1, 1, 60, 4, socket.inet_aton(sys.argv[1]))
for packet in (question, answer):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.sendto(packet, ("127.0.0.1", 53))
    client.connect(("127.0.0.1", 53))
    client.send(packet)
    client.sendmsg([packet])
own, end = socket.socketpair()
for packet in (question, answer):
    own.sendmsg([packet])
print(errno.errorcode.get(socket.socket().connect_ex((sys.argv[1], 8080)), "ok"))
"""
OTHER_SERVER = """
import errno, socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(*(errno.errorcode.get(client.connect_ex((host, 53)), "ok") for host in sys.argv[1:]))
"""
# Goes on until the name's new address is let through.
AGAIN = """
import errno, socket, sys, time
first = socket.socket().connect_ex((sys.argv[1], 8080))
print(errno.errorcode.get(first, "ok"), flush=True)
sys.stdin.readline()
end = time.monotonic() + 60
while (code := socket.socket().connect_ex((sys.argv[2], 8080))) and time.monotonic() < end:
    time.sleep(0.2)
old = socket.socket().connect_ex((sys.argv[1], 8080))
print(*(errno.errorcode.get(each, "ok") for each in (code, old)))
"""


class NameServer:
    """Answers from a table, and no other name exists."""

    def __init__(self) -> None:
        self.table: dict[str, list[str]] = {
            "good.test": [GOOD, GOOD6],
            "evil.test": [OTHER],
            "inner.test": [PRIVATE],
            "a.wild.test": [GOOD],
            "b.c.wild.test": [LATER],
            "wild.test": [OTHER],
            "moving.test": [GOOD],
        }
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            data, sender = self._socket.recvfrom(4096)
            try:
                answer = self._answer(data)
            except (IndexError, struct.error, UnicodeDecodeError):
                continue
            self._socket.sendto(answer, sender)

    def _answer(self, data: bytes) -> bytes:
        labels, place = [], _HEADER
        while data[place]:
            labels.append(data[place + 1 : place + 1 + data[place]].decode())
            place += 1 + data[place]
        (kind,) = struct.unpack_from(">H", data, place + 1)
        known = self.table.get(".".join(labels).lower())
        records = [_record(each, kind) for each in known or ()]
        found = [record for record in records if record]
        flags = 0x8180 if known else 0x8183
        head = data[:2] + struct.pack(">5H", flags, 1, len(found), 0, 0)
        return head + data[_HEADER : place + 5] + b"".join(found)


def _record(address: str, kind: int) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if kind != (_AAAA if ":" in address else _A):
        return b""
    body = socket.inet_pton(family, address)
    return struct.pack(">HHHIH", 0xC00C, kind, 1, 0, len(body)) + body


def listen() -> None:
    """Answer connections to every address of this small world."""
    for address in ADDRESSES:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        own = socket.create_server((address, PORT), family=family, backlog=100)
        threading.Thread(target=_greet, args=(own,), daemon=True).start()


def _greet(own: socket.socket) -> None:
    while True:
        peer, _ = own.accept()
        with peer:
            peer.settimeout(_SECONDS)
            peer.recv(4096)
            peer.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello")


def run(rules: list[str], words: list[str], *, confined: bool = True) -> str:
    """Run a command under rules for connections, or free; return what it said."""
    options = [f"--connect={rule}" for rule in rules]
    launcher = [sys.executable, "-I", "-m", "democrai_osguard_launcher", *options, "--"]
    done = subprocess.run(
        [*(launcher if confined else []), *words],
        capture_output=True, text=True, check=False, timeout=_SECONDS,
    )  # fmt: skip
    return done.stdout.strip() or f"{done.returncode}: {done.stderr[-500:]}"


def python(script: str, *words: str) -> list[str]:
    """Return a command that runs a script."""
    return [sys.executable, "-I", "-c", script, *words]


def moved(server: NameServer) -> str:
    """Let a name turn to another address while a command runs that may reach it."""
    launcher = [sys.executable, "-I", "-m", "democrai_osguard_launcher"]
    command = [*launcher, f"--connect=moving.test:{PORT}", "--", *python(AGAIN, GOOD, LATER)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        first = child.stdout.readline().strip()
        server.table["moving.test"] = [LATER]
        rest, _ = child.communicate("go on\n", _SECONDS * 2)
        return f"{first} {rest.strip()}"


def asked() -> str:
    """Connect under supervision, by name and by address; say what was asked."""
    ours, theirs = socket.socketpair()
    questions: list[str] = []

    def answer() -> None:
        with ours.makefile("rw", encoding="utf-8") as lines:
            for line in lines:
                message = json.loads(line)
                if message.get("resource_type") == "network":
                    questions.append(message["target"])
                if "id" in message:
                    lines.write(json.dumps({"id": message["id"], "answer": "once"}) + "\n")
                    lines.flush()

    threading.Thread(target=answer, daemon=True).start()
    options = ["--supervised", "--subject", "module:m", "--ask-fd", str(theirs.fileno())]
    launcher = [sys.executable, "-I", "-m", "democrai_osguard_launcher", *options, "--"]
    done = subprocess.run(
        [*launcher, *python(DIAL, "evil.test", LATER)], pass_fds=[theirs.fileno()],
        capture_output=True, text=True, check=False, timeout=_SECONDS,
    )  # fmt: skip
    return f"{done.stdout.strip()} {' '.join(dict.fromkeys(questions))}"


def traced(rule: str, *hosts: str, script: str = DIAL) -> str:
    """Connect where no rule leads while a rule has a name; say what the trace has of it."""
    with tempfile.NamedTemporaryFile() as file:
        options = ["--trace", file.name, f"--connect={rule}"]
        launcher = [sys.executable, "-I", "-m", "democrai_osguard_launcher", *options, "--"]
        words = [*launcher, *python(script, *hosts)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_SECONDS)
        lines = [json.loads(line) for line in file]
        told = [*OSGUARD, "why", file.name]
        why = subprocess.run(told, capture_output=True, text=True, check=False, timeout=_SECONDS)
    missing = [line["missing"] for line in lines if line.get("missing")]
    targets = [each["target"] for each in missing if each["resource_type"] == "network"]
    known = "looked up as" if "looked up as inner.test" in why.stdout else ""
    return f"{done.stdout.strip()} {' '.join(targets)} {known}".strip()


def learnt(host: str) -> str:
    """Learn from a command that dials a name, and run it again; say what came of it, by what."""
    with tempfile.NamedTemporaryFile() as file:
        words = [*OSGUARD, "learn", "--manifest-out", file.name, "--", *python(DIAL, host)]
        first = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_SECONDS)
        access = json.load(file)["access"]
        launcher = [sys.executable, "-I", "-m", "democrai_osguard_launcher"]
        again = [*launcher, "--manifest", file.name, "--", *python(DIAL, host)]
        done = subprocess.run(again, capture_output=True, text=True, check=False, timeout=_SECONDS)
    rules = sorted(each["target"] for each in access if each["resource_type"] == "network")
    return f"{first.stdout.strip()} {done.stdout.strip()} {' '.join(rules)}"


def main() -> None:
    """Do everything once and print what came of it."""
    server = NameServer()
    listen()
    good, wild = f"good.test:{PORT}", f"*.wild.test:{PORT}"
    curl = ["curl", "-sS", "--noproxy", "*"]
    findings = {
        "free": run([], python(DIAL, "good.test", GOOD6, OTHER, "inner.test"), confined=False),
        "by name": run([good], python(DIAL, "good.test", GOOD, GOOD6)),
        "other": run([good], python(DIAL, "evil.test", OTHER, LATER, "127.0.0.1")),
        "other port": run(["good.test:81"], python(DIAL, "good.test")),
        "private": run([f"inner.test:{PORT}"], python(DIAL, "inner.test")),
        "private and named": run([f"inner.test:{PORT}", "10.0.0.0/8"], python(DIAL, "inner.test")),
        "below": run([wild], python(DIAL, "a.wild.test", "b.c.wild.test", "wild.test", OTHER)),
        "below, looked up otherwise": run([wild], python(BY_OLD_CALL, "a.wild.test")),
        "below, never looked up": run([wild], python(DIAL, GOOD)),
        "forged": run([wild], python(FORGE, OTHER)),
        "another server": run([good], python(OTHER_SERVER, "127.0.0.1", OTHER)),
        "curl": run([good], [*curl, f"http://good.test:{PORT}/"]),
        "moved": moved(server),
        "asked": asked(),
        "traced": traced(good, "good.test", OTHER),
        "traced by name": traced(good, "evil.test"),
        "traced by name, looked up otherwise": traced(good, "evil.test", script=BY_OLD_CALL),
        "traced inside": traced(f"inner.test:{PORT}", "inner.test"),
        "learnt": learnt("good.test"),
        "learnt inside": learnt("inner.test"),
    }
    print(json.dumps(findings))  # noqa: T201 - the result
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
