"""Writes down what rules a command lacks, one line of JSON for each act, while it runs.

Two uses: under its policy, every refusal and the rule that was missing (`--trace`); with everything
allowed, every act that needs a rule (`--observe`). What is written comes from the calls that wait
in the kernel, never from what a program says. `docs/broker.md` describes the lines.
"""

from __future__ import annotations

import ipaddress
import json
import os

from . import acts, addresses, landlock, network_acts, seccomp, unruled
from .destinations import is_inside
from .grants import Grants
from .reaching import Reaching
from .report import Lines
from .rules import FILESYSTEM, NETWORK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .broker import Broker, Roots
    from .caller import Call
    from .connections import Connections
    from .network_acts import Datum
    from .plan import Plan

    Fields = Mapping[str, object]

FORMAT = 1
REFUSED, NEEDED = "refused", "needed"
MAX_LINES = 200_000  # a program that never stops asking does not fill the disk
_FIRST_CALL = "execve"
_NOTHING: Fields = {"missing": None, "path": None}  # that a rule could say


class Watch:
    """Looks at each call before it is answered, and answers nothing itself."""

    waiting = seccomp.TRACE

    def __init__(self, file: int, plan: Plan, *, command: tuple[str, ...], mode: str) -> None:
        self.file = file
        # What is needed may be run with a broker, which then judges more.
        self._grants = Grants(plan, has_broker=mode == NEEDED)
        self._reaching = Reaching(plan)
        self._unruled = unruled.Unruled(plan.abi)
        self._mode = mode
        self._room = MAX_LINES
        self._command = 0  # the process that is to become the command
        self._started = False  # what comes before its exec are the launcher's own trials
        self._peers: dict[tuple[int, int], network_acts.Reach] = {}
        head = {"format": FORMAT, "mode": mode, "command": list(command), "access": _access(plan)}
        self._lines = Lines(file, json.dumps(head))

    def begin(self, command: int) -> None:
        """Say which process becomes the command."""
        self._command = command
        self._grants.own_process_is(command)

    def make_broker(self, plan: Plan, roots: Roots, listener: int) -> Broker:
        """Return the broker that shows its calls here."""
        from .tracing import traced_broker  # noqa: PLC0415 - it needs this module

        return traced_broker(plan, roots, listener, self)

    def look(self, name: str, call: Call) -> bool:
        """Write down which rules the call lacks; tell whether it lacks any."""
        if not self._started:
            self._started = name == _FIRST_CALL and call.thread == self._command
        if not self._started:
            return False
        done = acts.file_acts(name, call)
        found = [
            _missing(FILESYSTEM, operation, act.folder or act.target, act.target)
            for act in done
            for operation in self._grants.missing_for(act)
        ]
        if self._mode == NEEDED:
            self._moves(done)
        reason = self._reason(name, call, done)
        if reason:
            found = [*(found if name == "bind" else []), {**_NOTHING, "why": reason}]
        for message in network_acts.messages(name, call):
            found += self._network(name, call, message)
        for each in found:
            self._line(name, call, each)
        return bool(found)

    def _reason(self, name: str, call: Call, done: tuple[acts.Act, ...]) -> str | None:
        """Return why no rule helps, where that is so."""
        if self._unruled.listens(name, call):
            return unruled.LISTENING
        return self._unruled.unix(name, call, done) if self._mode == NEEDED else None

    def refused(self, name: str, call: Call) -> None:
        """Write down a refusal that no file and no peer explains."""
        if self._started:
            self._line(name, call, _socket(call) if name == "socket" else _NOTHING)

    def _moves(self, done: tuple[acts.Act, ...]) -> None:
        """Write down what came to another folder: rules for that folder count for it there."""
        for act in done:
            if os.path.dirname(act.target) != os.path.dirname(act.leads_to or act.target):
                whole = bool(act.right & landlock.READ_DIR)
                self._write({"moved": act.target, "to": act.leads_to, "folder": whole})

    def unreached(self, name: str, call: Call, connections: Connections | None) -> None:
        """Write down a peer that the broker refused: what its name means only the broker knows."""
        for message in network_acts.messages(name, call) if self._started else ():
            reach = network_acts.peer(message.address)
            if reach is not None:
                known = connections.name_of(reach.host) if connections else None
                self._line(name, call, _connection("connect", reach, name=known))

    def _network(self, name: str, call: Call, message: Datum) -> list[Fields]:
        socket = (call.process(), call.integer(0))
        reach = network_acts.peer(message.address) or self._peers.get(socket)
        if reach is None:
            return []
        if name == "connect":
            self._peers[socket] = reach
        if reach.port == network_acts.DNS:
            self._lookup(call, message)
        if self._mode == NEEDED:
            return self._needed(reach, message)
        lacks = message.address and self._reaching.refuses(reach)
        return [_connection("connect", reach)] if lacks else []

    def _needed(self, reach: network_acts.Reach, message: Datum) -> list[Fields]:
        if not reach.port or reach.port == network_acts.DNS or self._reaching.covers(reach):
            return []
        way = network_acts.direction(message.content)
        if way:
            return [_connection(way, reach, "http://")]
        return [_connection("connect", reach)] if message.address else []

    def _lookup(self, call: Call, message: Datum) -> None:
        asked = network_acts.question(message.content)
        if asked:
            self._write({"lookup": asked, "pid": call.process()})

    def _line(self, name: str, call: Call, fields: Fields) -> None:
        process = call.process()
        own = {"call": name, "pid": process, "program": _program(process)}
        self._write({**own, **fields})

    def _write(self, line: dict[str, object]) -> None:
        if self._room > 0:
            self._room -= 1
            added = self._lines.add(json.dumps(line if self._room else {"more": "was left out"}))
            if not added:  # the command goes on, as strictly held as before
                self._room = 0


def _access(plan: Plan) -> list[Fields]:
    rules = (each.rule for each in plan.rules)
    return [_rule(rule.resource_type, rule.operation, rule.target) for rule in rules]


def _rule(kind: str, operation: str, target: str | None) -> Fields:
    return {"resource_type": kind, "operation": operation, "target": target}


def _missing(kind: str, operation: str, target: str | None = None, path: str = "") -> Fields:
    """Say which rule was missing, and on what the act was if that is another path."""
    return {"missing": _rule(kind, operation, target), "path": path or target}


def _socket(call: Call) -> Fields:
    """Say what a rule for such a socket looks like: to whom it would lead is not known yet."""
    if call.integer(0) == addresses.AF_UNIX:
        return _missing(FILESYSTEM, "modify")
    return _missing(NETWORK, "connect")


def _connection(
    operation: str, reach: network_acts.Reach, scheme: str = "", name: str | None = None
) -> Fields:
    """Say which rule was missing for a peer: by its name, unless a name does not lead there."""
    inside = is_inside(ipaddress.ip_address(reach.host).packed)
    host = f"[{reach.host}]" if ":" in reach.host else reach.host
    if name and not inside:
        return _missing(NETWORK, operation, f"{scheme}{name}:{reach.port}")
    more = {"inside": True, **({"name": name} if name else {})} if inside else {}
    return {**_missing(NETWORK, operation, f"{scheme}{host}:{reach.port}"), **more}


def _program(process: int) -> str:
    try:
        return os.readlink(f"/proc/{process}/exe")
    except OSError:
        return ""
