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
from democrai_osguard.cli.output import say, say_json
from democrai_osguard.manifest import dump_access, load_manifest
from democrai_osguard.policy.chain import Chain
from democrai_osguard.policy.decide import Policy, decide
from democrai_osguard.policy.decision import Allow, Decision
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


@dataclass(frozen=True, slots=True)
class Trial:
    """How an act went: free, and under the policy."""

    title: str
    what: Rule  # in normal form
    decision: Decision
    works_free: bool
    confined: tuple[str, ...] = ()  # the command line, as a person would write it
    refusal: str | None = None  # the last line of a command that failed

    @property
    def allowed(self) -> bool:
        """Whether the policy allows it."""
        return isinstance(self.decision, Allow)

    @property
    def agrees(self) -> bool:
        """Whether the kernel did what the policy says."""
        return self.works_free and (self.refusal is None) == self.allowed

    def document(self) -> dict[str, object]:
        """Return it for machines."""
        return {
            "title": self.title,
            "access": dump_access([self.what])[0],
            "works_free": self.works_free,
            "command": list(self.confined),
            "allowed": self.allowed,
            "refusal": self.refusal,
            "reason": self.decision.reason,
            "agrees": self.agrees,
        }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def demo(*, as_json: bool) -> int:
    """Run commands under a policy, and see what is refused and why."""
    with tempfile.TemporaryDirectory(prefix="osguard-demo-") as made, _listener() as listener:
        folder = os.path.realpath(made)
        chain = Chain.of(_SUBJECT, load_manifest(_furnish(folder)).access)
        if not as_json:
            _say_policy(chain)
        trials = []
        for act in _acts(folder, listener.getsockname()[1]):
            trials.append(_try(act, chain, folder))
            if not as_json:
                _say_trial(trials[-1])
    holds = all(trial.agrees for trial in trials)
    if as_json:
        say_json({"holds": holds, "acts": [trial.document() for trial in trials]})
    else:
        _say_end(holds=holds)
    return Exit.ALLOWED if holds else Exit.NOT_ENFORCED


def _say_policy(chain: Chain) -> None:
    say(f"The policy of {_SUBJECT}, all that it may touch beside the system's own libraries:")
    for rule in chain.flat():
        say(f"  {rule}")


def _say_end(*, holds: bool) -> None:
    say()
    if holds:
        say("Each act went as the policy says, and the kernel held it: no root, no daemon.")
        say(f"Next: {_called('democrai-osguard')} status, {_called('democrai-launch')} --help.")
        return
    say("Not every act went as the policy says: do not rely on this host. See the lines above.")


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


def _try(act: Act, chain: Chain, folder: str) -> Trial:
    """Try the act free, and confined where it works at all."""
    what = act.access
    request = access_request(_SUBJECT, what.resource_type, what.operation, what.target)
    decision = decide(request, Policy(chain))
    if _run(act.command, folder).returncode != 0:
        return Trial(act.title, request.rule, decision, works_free=False)
    options: list[str] = []
    for rule in chain.flat():
        options += f"--{rule.operation}", os.path.relpath(rule.target, folder)
    launcher = (sys.executable, "-I", "-m", "democrai_osguard_launcher", "--subject", str(_SUBJECT))
    done = _run((*launcher, *options, "--", *act.command), folder)
    of_ours = act.command[0] == sys.executable
    command = ("python3", "-c", "…", act.command[-1]) if of_ours else act.command
    lines = done.stderr.strip().splitlines() or ["no message"]
    return Trial(
        act.title,
        request.rule,
        decision,
        works_free=True,
        confined=("democrai-launch", *options, "--", *command),
        refusal=lines[-1] if done.returncode else None,
    )


def _say_trial(trial: Trial) -> None:
    say()
    say(f"{trial.title}: {trial.what}")
    if not trial.works_free:
        say("  free      failed already: this act shows nothing here")
        return
    say("  free      works")
    say(f"  confined  {shlex.join(trial.confined)}")
    say(f"            {'works' if trial.refusal is None else f'refused: {trial.refusal}'}")
    say(f"  why       {trial.decision.reason}")
    if not trial.allowed:
        say(f"  do        {getattr(trial.decision, 'hint', '')}")
    if not trial.agrees:
        say("  MISMATCH  the policy and the kernel disagree")


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
