"""Decides what each layer will enforce. Pure: rules and facts in, a frozen plan out.

The guard may import this module; it touches no file and no kernel.
"""

from __future__ import annotations

from . import landlock
from .baseline import READ, RUN, RUNTIME_PATHS
from .network_plan import NetworkPlan, PortRights
from .record import Record
from .rules import FILESYSTEM, NETWORK, Rule, within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EXACT = "exact"  # the kernel enforces precisely this rule
BROKERED = "brokered"  # the supervising process completes it
GUARD_ONLY = "guard only"  # below Python nothing tells this rule from a wider one

FULL, PARTIAL, NONE = "full", "partial", "none"
DIRECTORY, FILE, SOCKET, MISSING = "directory", "file", "socket", "missing"
_ABI_SIGNALS, _ABI_UNIX, _ABI_UDP = 6, 9, 10


class Facts(Record):
    """All that the plan knows of the world."""

    abi: int  # of Landlock, 0 where there is none
    seccomp: bool
    notifications: bool  # whether a call can wait for the broker
    kinds: Mapping[str, str]  # of each file system target
    programs: Mapping[str, tuple[str, ...]]  # files behind each system dependency
    executables: tuple[str, ...] = ()  # the command, its loader, its interpreters
    readable: tuple[str, ...] = ()  # what its interpreter needs beside the runtime paths
    helper: bool = False  # whether somebody holds addresses


class RulePlan(Record):
    """One rule, how far it is held, and in words by what."""

    rule: Rule
    label: str
    held_by: str


class PathRights(Record):
    """Landlock rights at a path and beneath it."""

    path: str
    rights: int
    why: str


class Plan(Record):
    """What will be enforced, and what will not."""

    abi: int
    seccomp: bool
    rules: tuple[RulePlan, ...]
    paths: tuple[PathRights, ...]
    ports: tuple[PortRights, ...]
    handled: landlock.Abilities
    endpoints: tuple[tuple[str, int | None], ...]  # for the helper, which holds addresses
    by_address: bool  # whether it will be asked to
    sockets: tuple[str, ...]
    brokered: tuple[str, ...]  # kinds of calls that wait for the supervising process
    missing: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def level(self) -> str:
        """Say how much of the policy the kernel holds: full, partial or none."""
        if not self.abi and not self.seccomp:
            return NONE
        return PARTIAL if self.missing else FULL


def make_plan(rules: Sequence[Rule], facts: Facts) -> Plan:
    """Turn rules into rights, for a host with these facts."""
    able = landlock.abilities(facts.abi)
    network = NetworkPlan(rules, facts.abi, helper=facts.helper)
    modifiable = _targets(rules, "modify")
    return Plan(
        abi=facts.abi,
        seccomp=facts.seccomp,
        rules=tuple(_rule_plan(rule, modifiable, facts, network) for rule in rules),
        paths=tuple(_paths(rules, facts)),
        ports=tuple(network.ports(able.network)),
        handled=landlock.Abilities(able.filesystem, network.handled(able.network), able.scopes),
        endpoints=tuple((endpoint.host, endpoint.port) for endpoint in network.endpoints),
        by_address=network.by_address,
        sockets=tuple(_sockets(rules, facts, network)),
        brokered=tuple(_brokered(rules, modifiable, facts)),
        missing=tuple(_missing(facts, network, rules)),
        notes=(*_notes(rules, facts), *network.notes()),
    )


def _rule_plan(
    rule: Rule, modifiable: frozenset[str], facts: Facts, network: NetworkPlan
) -> RulePlan:
    if rule.resource_type == NETWORK:
        label = EXACT if network.is_exact(rule) else GUARD_ONLY
        return RulePlan(rule, label, network.held_by(rule))
    if rule.resource_type == FILESYSTEM:
        return RulePlan(rule, *_filesystem_label(rule, modifiable, facts))
    if not facts.programs.get(rule.target):
        return RulePlan(rule, GUARD_ONLY, "no program of this name is on PATH: nothing to open")
    return RulePlan(rule, *_exact(facts, "Landlock, on the program found on PATH"))


def _filesystem_label(rule: Rule, modifiable: frozenset[str], facts: Facts) -> tuple[str, str]:
    kind = facts.kinds[rule.target]
    if rule.operation in {"create", "delete"} and kind != DIRECTORY:
        return _through_broker(facts, "Landlock has no such right on a single name")
    if rule.operation == "create" and not within(rule.target, modifiable):
        return _through_broker(facts, "Landlock has no right to write only what is new")
    if kind == MISSING:
        return _exact(facts, "nothing: the path does not exist, so nothing is opened")
    return _exact(facts, _HELD_BY.get(rule.operation, "Landlock"))


_HELD_BY = {
    "modify": "Landlock; the broker for modes, owners, times and attributes",
    "delete": "Landlock; the broker for the path itself",
    "execute": "Landlock; what can be started can also be read",
}


def _through_broker(facts: Facts, why: str) -> tuple[str, str]:
    if not facts.notifications:
        return GUARD_ONLY, f"{why}, and this kernel has no broker: stays closed"
    return BROKERED, why


def _brokered(rules: Sequence[Rule], modifiable: frozenset[str], facts: Facts) -> Iterator[str]:
    """Yield the kinds of calls that Landlock cannot judge for these rules."""
    own = [rule for rule in rules if rule.resource_type == FILESYSTEM]
    if not facts.notifications or not facts.abi:
        return
    if any(_is_new_only(rule, modifiable, facts) for rule in own):
        yield "create"
    doomed = {facts.kinds[rule.target] for rule in own if rule.operation == "delete"}
    if doomed - {DIRECTORY}:
        yield "delete"
    elif doomed:
        yield "delete folder"
    if modifiable:
        yield "metadata"


def _is_new_only(rule: Rule, modifiable: frozenset[str], facts: Facts) -> bool:
    if rule.operation != "create":
        return False
    return facts.kinds[rule.target] != DIRECTORY or not within(rule.target, modifiable)


def _exact(facts: Facts, by: str) -> tuple[str, str]:
    return (EXACT, by) if facts.abi else (GUARD_ONLY, "this kernel has no Landlock")


def _targets(rules: Sequence[Rule], operation: str) -> frozenset[str]:
    return frozenset(
        rule.target
        for rule in rules
        if rule.resource_type == FILESYSTEM and rule.operation == operation
    )


def _paths(rules: Sequence[Rule], facts: Facts) -> Iterator[PathRights]:
    """Yield the rights of the runtime, then those of the rules, one entry for each path."""
    handled = landlock.abilities(facts.abi).filesystem
    for path, rights, why in RUNTIME_PATHS:
        yield PathRights(path, rights & handled, why)
    for path in facts.executables:
        yield PathRights(path, RUN & handled, "the command and what the kernel starts for it")
    for path in facts.readable:
        yield PathRights(path, READ & handled, "what the command's interpreter reads to start")
    for path, rights in _declared(rules, facts).items():
        yield PathRights(path, rights & handled, "declared")


def _declared(rules: Sequence[Rule], facts: Facts) -> dict[str, int]:
    declared: dict[str, int] = {}
    for rule in rules:
        if rule.resource_type == FILESYSTEM and facts.kinds[rule.target] != MISSING:
            rights = _rights(rule.operation, facts.kinds[rule.target])
            declared[rule.target] = declared.get(rule.target, 0) | rights
        for path in facts.programs.get(rule.target, ()):
            declared[path] = declared.get(path, 0) | RUN
    return {path: rights for path, rights in declared.items() if rights}


def _rights(operation: str, kind: str) -> int:
    rights = landlock.OPERATION_RIGHTS[operation]
    if operation in landlock.MOVING_OPERATIONS:
        rights |= landlock.REFER
    return rights if kind == DIRECTORY else rights & landlock.FILE_RIGHTS


def _sockets(rules: Sequence[Rule], facts: Facts, network: NetworkPlan) -> Iterator[str]:
    # Before ABI 9 nothing judges which pathname socket is connected to, so there are none.
    if facts.abi >= _ABI_UNIX or _declares_socket(rules, facts):
        yield "unix"
    if network.endpoints:
        yield "tcp"
        yield "netlink route"
    if network.has_names or network.by_address:
        yield "udp"


def _declares_socket(rules: Sequence[Rule], facts: Facts) -> bool:
    return any(
        rule.resource_type == FILESYSTEM
        and rule.operation == "modify"
        and facts.kinds[rule.target] == SOCKET
        for rule in rules
    )


def _missing(facts: Facts, network: NetworkPlan, rules: Sequence[Rule]) -> Iterator[str]:
    if not facts.abi:
        yield "files: this kernel has no Landlock"
    if not facts.seccomp:
        yield "system calls, sockets and metadata: no seccomp program for this kernel and machine"
    for rule in () if network.by_address else network.rules:
        yield f"network {rule.operation} {rule.target}: {network.held_by(rule)}"
    if network.has_names and facts.abi < _ABI_UDP and not network.by_address:
        yield "UDP: open to every address and port, because names need a resolver"
    if _declares_socket(rules, facts) and facts.abi < _ABI_UNIX:
        yield "unix sockets: with one declared, this kernel lets the command connect to any"


def _notes(rules: Sequence[Rule], facts: Facts) -> Iterator[str]:
    missing = sorted(
        {
            rule.target
            for rule in rules
            if facts.kinds.get(rule.target) == MISSING and rule.operation in _HELD_BY_INODE
        }
    )
    if missing:
        yield f"these paths do not exist and open nothing: {', '.join(missing)}"
    if 0 < facts.abi < _ABI_SIGNALS:
        yield "signals: the command can signal other processes of its user before ABI 6"


_HELD_BY_INODE = frozenset({"read", "modify", "execute"})
