"""The parts of the load. Each runs in a process of its own, in rounds, until it is told to end.

A round does ordinary work and sometimes kills, at any moment, what does the work. A part returns
what it did, in figures, and raises where something was open that must be closed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING

from approvals.cases import ADA, read
from kernel.test_warm import request as warm_request
from root.daemons import Daemon, Resident, eventually
from root.lab import ALLOWED, FORBIDDEN, PORT
from soak.footprint import Footprint
from soak.page import page

from democrai_osguard.approvals import ApprovalService, open_store
from democrai_osguard.audit import AuditLog
from democrai_osguard_helper.client import Client, HelperRefused, HelperUnavailable
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.protocol import Update
from democrai_osguard_launcher.warm_client import LaunchFailed, WarmLauncher

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from soak.span import Span

ONE = (Endpoint(parse_network(ALLOWED[4]), PORT),)
BOTH = (*ONE, Endpoint(parse_network(ALLOWED[6]), PORT))
INSTANCE = f"s{os.getpid() % 1000000}"  # of the helper: its cgroups and its rules carry it
_KILLED = -signal.SIGKILL
_REFUSED = 125  # the launcher's own: it refused to run the command unprotected
_PATIENCE = 60.0
_WARM = 50  # decisions until a process has loaded what it needs
_REST = 0.01  # seconds between two decisions, for the others


def launches(folder: Path, span: Span, chance: random.Random) -> Counter[str]:
    """Launch cold, with the broker and without; kill the launcher or its supervisor at times."""
    done: Counter[str] = Counter()
    secret = folder / "secret"
    secret.write_text("closed")
    while True:
        inside = folder / "inside"
        inside.mkdir(exist_ok=True)
        make = f"echo new > {inside}/new$$ && rm {inside}/new$$"
        script = f"{make}; cat {secret} > {inside}/stolen$$; exit 3"
        rights = [f"--{word}={inside}" for word in ("read", "create", "delete")]
        command = [sys.executable, "-m", "democrai_osguard_launcher", *rights, "--execute=/usr/bin",
                   "--", "sh", "-c", script]  # fmt: skip
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        if span.kills(chance, 3):
            time.sleep(chance.uniform(0, 0.15))
            process.kill()
        said, code = process.communicate(timeout=_PATIENCE)[1], process.returncode
        assert code in {3, _KILLED}, f"a launch ended with {code}: {said}"
        done["cold launches" if code == 3 else "launchers killed"] += 1
        for stolen in inside.glob("stolen*"):
            assert not stolen.stat().st_size, "a command read what it may not"
            stolen.unlink()
        if span.is_over():
            return done


def warm_launches(folder: Path, span: Span, chance: random.Random) -> Counter[str]:
    """Launch through a warm launcher, and kill it at times; it must not grow."""
    done: Counter[str] = Counter()
    warm = WarmLauncher(python=(sys.executable,))
    grants = (("create", folder), ("read", folder))
    footprint: Footprint | None = None
    while True:
        with contextlib.suppress(LaunchFailed):
            for _ in range(10):
                pid = warm.launch(warm_request("sh", "-c", "exit 4", access=grants))
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
                done["warm launches"] += 1
        process = warm._process  # noqa: SLF001 - to kill and to measure exactly this one
        if span.is_over():
            break
        if process is not None and span.kills(chance, 10):
            process.kill()
            process.wait()
            done["warm launchers killed"] += 1
            footprint = None
        elif process is not None:
            footprint = footprint or Footprint.of(process.pid)
    if footprint is not None and process is not None:
        footprint.must_not_have_grown(process.pid, "the warm launcher")
    warm.close()
    return done


def decisions(folder: Path, span: Span, chance: random.Random) -> Counter[str]:
    """Let processes decide and revoke on one store and one log, and kill each at some moment."""
    done: Counter[str] = Counter()
    number = 0
    with (folder / "acknowledged").open("a", buffering=1) as acknowledged:
        while not number or not span.is_calm():
            lines = _killed_decider(folder, number, chance.uniform(0, 0.3))
            acknowledged.writelines(lines)
            done["deciders killed"] += 1
            done["decisions acknowledged"] += len(lines)
            number += len(lines) + 1000
        done["decisions acknowledged"] += _lasting_decider(folder, number, span, acknowledged.write)
    return done


def _killed_decider(folder: Path, number: int, seconds: float) -> list[str]:
    """Let a process decide, and kill it some time after its first decision; return its words."""
    hears, says = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _decide_for_ever(folder, number, says)
        except BaseException:  # noqa: BLE001 - it is to be seen, and the part fails with it
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(says)
    select.select([hears], [], [], _PATIENCE)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == _KILLED, f"a decider ended by itself, with {code}"
    with os.fdopen(hears) as pipe:
        return [line for line in pipe.read().splitlines(keepends=True) if line.endswith("\n")]


def _decide_for_ever(folder: Path, number: int, says: int) -> None:
    service = service_of(folder)

    def say(line: str) -> None:
        os.write(says, line.encode())

    _settle(service, say)
    for each in itertools.count(number):
        decide(service, each, say)


def _settle(service: ApprovalService, say: Callable[[str], object]) -> int:
    """Deny what a killed decider left open; return how many decisions came back."""
    left = service.list_requests()
    for request in left:
        decision = service.deny(request.id, ADA).decision
        assert decision is not None
        say(f"{decision.id}\n")
    return len(left)


def _lasting_decider(folder: Path, number: int, span: Span, say: Callable[[str], object]) -> int:
    """Decide until the time is up, without growing; return how many decisions came back."""
    service = service_of(folder)
    footprint: Footprint | None = None
    said = _settle(service, say)
    for each in itertools.count(number):
        said += decide(service, each, say)
        if span.is_over():
            break
        if each == number + _WARM:
            footprint = Footprint.of(os.getpid())
        time.sleep(_REST)
    if footprint is not None:
        footprint.must_not_have_grown(os.getpid(), "a service that decides")
    service.close()
    return said


def service_of(folder: Path) -> ApprovalService:
    """Open the store and the log of a part, where the page has its own.

    The log's files are few and small: even in a short run the oldest of them go.
    """
    store = open_store(f"sqlite://{folder}/state/approvals/approvals.sqlite3")
    log = AuditLog(f"{folder}/state/audit", rotate_bytes=1 << 12, keep_files=2)
    return ApprovalService(store, audit=log)


def decide(service: ApprovalService, number: int, say: Callable[[str], object]) -> int:
    """Approve or deny, and revoke every other time; say the number of each that came back."""
    asked = service.register(read(f"/srv/{number}"))
    outcome = service.decide(asked.id, ("permanent", "denied", "session")[number % 3], ADA)
    assert outcome.decision is not None
    say(f"{outcome.decision.id}\n")
    if number % 2 == 0:
        return 1
    say(f"{service.revoke(outcome.decision.id, ADA).id}\n")
    return 2


def egress(folder: Path, span: Span, chance: random.Random) -> Counter[str]:
    """Confine processes, change what they reach, and kill the helper; what is closed stays so."""
    done: Counter[str] = Counter()
    daemon = Daemon(folder, INSTANCE)
    daemon.start()
    daemon.wait()
    footprint: Footprint | None = None
    while True:
        kill = span.kills(chance, 4)
        child = Resident(daemon.socket, ONE)
        assert not child.sandbox.startswith("!"), child.sandbox
        _change(daemon, child, BOTH)
        assert child.does("tcp", ALLOWED[6], PORT) == "allowed"
        _change(daemon, child, ONE)
        if kill:
            daemon.kill()
        assert child.does("tcp", FORBIDDEN[4], PORT) != "allowed", "open"
        assert child.does("udp", ALLOWED[6], PORT) != "allowed", "open"
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        if kill:
            daemon.start()
            daemon.wait()
            done["helpers killed"] += 1
            footprint = None
        child.end()
        done["sandboxes"] += 1
        assert daemon.process is not None
        with Client(daemon.socket) as client:
            assert eventually(lambda: not client.list().sandboxes, _PATIENCE), "a sandbox was left"
        if span.is_over():
            break
        footprint = footprint or Footprint.of(daemon.process.pid)
    if footprint is not None:
        footprint.must_not_have_grown(daemon.process.pid, "the helper")
    daemon.stop()
    return done


def _change(daemon: Daemon, child: Resident, policy: tuple[Endpoint, ...]) -> None:
    with contextlib.suppress(HelperUnavailable, HelperRefused), Client(daemon.socket) as client:
        client.update(Update(child.sandbox, policy, ()))


PARTS = {
    "launches": launches,
    "warm launches": warm_launches,
    "decisions": decisions,
    "egress": egress,
    "page": page,
}
