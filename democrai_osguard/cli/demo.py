"""`democrai-osguard demo`: the main job in a minute, on files and a listener that it makes.

Each act is tried twice: free, to show that it works, and under the policy. Nothing outside a
temporary folder is touched, and no root and no daemon is needed.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import click

from democrai_osguard.access import Rule, Subject
from democrai_osguard.cli.exits import Exit
from democrai_osguard.cli.output import say
from democrai_osguard.manifest import load_manifest
from democrai_osguard.policy.chain import Chain
from democrai_osguard.policy.decide import Policy, decide
from democrai_osguard.policy.decision import Allow
from democrai_osguard.targets.request import access_request

_SUBJECT = Subject.parse("module:demo")
_CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1]))).close()"
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Act:
    """Something to try: a command, and the access that it amounts to."""

    title: str
    command: tuple[str, ...]
    access: Rule


@click.command()
def demo() -> int:
    """Run commands under a policy and see one act allowed and three refused, with reasons."""
    with tempfile.TemporaryDirectory(prefix="osguard-demo-") as made, _listener() as listener:
        folder = os.path.realpath(made)
        manifest = _furnish(folder)
        chain = Chain.of(_SUBJECT, load_manifest(manifest).access)
        say(f"The policy of {_SUBJECT}, all that it may touch beside the system's own libraries:")
        for rule in chain.flat():
            say(f"  {rule}")
        acts = _acts(folder, listener.getsockname()[1])
        outcomes = [_try(act, chain, folder) for act in acts]
    say()
    if all(outcomes):
        say("Each act went as the policy says, and the kernel held it: no root, no daemon.")
        say(f"Next: {_called('democrai-osguard')} status, {_called('democrai-launch')} --help.")
        return Exit.ALLOWED
    say("Not every act went as the policy says: do not rely on this host. See the lines above.")
    return Exit.NOT_ENFORCED


def _furnish(folder: str) -> str:
    """Make the demo's files; return the path of its manifest."""
    for name, text in (("shared/notes.txt", "Meet at noon.\n"), ("private/key.txt", "secret\n")):
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    manifest = os.path.join(folder, "manifest.json")
    rule = {"resource_type": "filesystem", "operation": "read", "target": "shared"}
    with open(manifest, "w", encoding="utf-8") as file:
        json.dump({"name": "demo", "access": [rule]}, file)
    return manifest


def _acts(folder: str, port: int) -> tuple[Act, ...]:
    notes, key = "shared/notes.txt", "private/key.txt"
    connect = (sys.executable, "-I", "-c", _CONNECT, str(port))
    return (
        Act("Read a declared file", ("cat", notes), _file("read", folder, notes)),
        Act("Read another file", ("cat", key), _file("read", folder, key)),
        Act("Write where only reading is declared", ("tee", notes), _file("modify", folder, notes)),
        Act("Open a connection", connect, Rule.of("network", "connect", f"127.0.0.1:{port}")),
    )


def _called(program: str) -> str:
    """Return how to call a program that was installed beside this one, from here."""
    if shutil.which(program):
        return program
    return os.path.relpath(os.path.join(os.path.dirname(sys.executable), program))


def _file(operation: str, folder: str, name: str) -> Rule:
    return Rule.of("filesystem", operation, os.path.join(folder, name))


def _listener() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def _try(act: Act, chain: Chain, folder: str) -> bool:
    """Try the act free and confined; tell whether the kernel agrees with the policy."""
    what = act.access
    request = access_request(_SUBJECT, what.resource_type, what.operation, what.target)
    decision = decide(request, Policy(chain))
    say()
    say(f"{act.title}: {request.rule}")
    if _run(act.command, folder).returncode != 0:
        say("  free      failed already: this act shows nothing here")
        return False
    say("  free      works")
    allowed = isinstance(decision, Allow)
    went = _confined(act.command, chain, folder)
    say(f"  why       {decision.reason}")
    if not allowed:
        say(f"  do        {getattr(decision, 'hint', '')}")
    if went != allowed:
        say("  MISMATCH  the policy and the kernel disagree")
    return went == allowed


def _confined(command: tuple[str, ...], chain: Chain, folder: str) -> bool:
    """Run the command under the launcher, show how it went, and tell whether it succeeded."""
    options: list[str] = []
    for rule in chain.flat():
        options += f"--{rule.operation}", os.path.relpath(rule.target, folder)
    shown = ("python3", "-c", "…", command[-1]) if command[0] == sys.executable else command
    say(f"  confined  democrai-launch {shlex.join((*options, '--', *shown))}")
    launcher = (sys.executable, "-I", "-m", "democrai_osguard_launcher", "--subject", str(_SUBJECT))
    done = _run((*launcher, *options, "--", *command), folder)
    lines = done.stderr.strip().splitlines() or ["no message"]
    say(f"            {'works' if not done.returncode else f'refused: {lines[-1]}'}")
    return done.returncode == 0


def _run(command: tuple[str, ...], folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - the demo's own commands
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE,
    )
