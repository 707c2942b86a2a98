"""The parts of the load. Each runs in a process of its own, in rounds, until it is told to end.

A round does ordinary work and sometimes kills, at any moment, what does the work. A part returns
what it did, in figures, and raises where something was open that must be closed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from approvals.cases import ADA, read
from kernel.test_warm import request as warm_request
from root.daemons import Daemon, Resident, eventually
from root.lab import ALLOWED, FORBIDDEN, PORT
from soak.footprint import Footprint

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

    Until = Callable[[], bool]  # whether the time is up

ONE = (Endpoint(parse_network(ALLOWED[4]), PORT),)
BOTH = (*ONE, Endpoint(parse_network(ALLOWED[6]), PORT))
INSTANCE = f"s{os.getpid() % 1000000}"  # of the helper: its cgroups and its rules carry it
_KILLED = -signal.SIGKILL
_REFUSED = 125  # the launcher's own: it refused to run the command unprotected
_PATIENCE = 60.0


def _sometimes(chance: random.Random, one_in: int) -> bool:
    return chance.randrange(one_in) == 0


def launches(folder: Path, until: Until, chance: random.Random) -> Counter[str]:
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
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        if _sometimes(chance, 3):
            time.sleep(chance.uniform(0, 0.15))
            process.kill()
        code = process.wait(_PATIENCE)
        assert code in {3, _KILLED}, f"a launch ended with {code}"
        done["cold launches" if code == 3 else "launchers killed"] += 1
        for stolen in inside.glob("stolen*"):
            assert not stolen.stat().st_size, "a command read what it may not"
            stolen.unlink()
        if until():
            return done


def warm_launches(folder: Path, until: Until, chance: random.Random) -> Counter[str]:
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
        if until():
            break
        if process is not None and _sometimes(chance, 10):
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


def decisions(folder: Path, until: Until, chance: random.Random) -> Counter[str]:
    """Let processes decide and revoke on one store and one log, and kill each at some moment."""
    done: Counter[str] = Counter()
    acknowledged = (folder / "acknowledged").open("a")
    number = 0
    while True:
        hears, says = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _decide(folder, number, says)
            finally:
                os._exit(1)
        os.close(says)
        select.select([hears], [], [], _PATIENCE)
        time.sleep(chance.uniform(0, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(hears) as pipe:
            lines = [line for line in pipe.read().splitlines(keepends=True) if line.endswith("\n")]
        acknowledged.writelines(lines)
        done["deciders killed"] += 1
        done["decisions acknowledged"] += len(lines)
        number += len(lines) + 1000
        if until():
            acknowledged.close()
            return done


def service_of(folder: Path) -> ApprovalService:
    """Open the store and the log that the deciders share."""
    store = open_store(f"sqlite://{folder}/store/approvals.sqlite3")
    return ApprovalService(store, audit=AuditLog(f"{folder}/audit", rotate_bytes=1 << 20))


def _decide(folder: Path, number: int, says: int) -> None:
    """Approve, deny and revoke until killed; say the number of each decision that came back."""
    service = service_of(folder)
    while True:
        asked = service.register(read(f"/srv/{number}"))
        scope = ("permanent", "denied", "session")[number % 3]
        outcome = service.decide(asked.id, scope, ADA)
        assert outcome.decision is not None
        os.write(says, f"{outcome.decision.id}\n".encode())
        if number % 2:
            os.write(says, f"{service.revoke(outcome.decision.id, ADA).id}\n".encode())
        number += 1


def egress(folder: Path, until: Until, chance: random.Random) -> Counter[str]:
    """Confine processes, change what they reach, and kill the helper; what is closed stays so."""
    done: Counter[str] = Counter()
    daemon = Daemon(folder, INSTANCE)
    daemon.start()
    daemon.wait()
    footprint: Footprint | None = None
    while True:
        kill = _sometimes(chance, 4) and not until()
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
        if until():
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
}
