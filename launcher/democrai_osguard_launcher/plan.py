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
DECLARED = "declared"  # why a path has rights: a rule says so
_ABI_SIGNALS, _ABI_UNIX, _ABI_UDP = 6, 9, 10
# Kinds of brokered calls, as the filter knows them.
CONNECT, SOCKET_PATHS, NAMES = "connect", "socket paths", "names"
BY_PATH = "Landlock cannot tell which socket is connected to"  # so that the broker does
NO_SOCKETS = "a unix socket beneath it needs a modify rule of its own"
NOT_TO_HELPER = "nothing: no command talks to the helper"
NOT_BESIDE_HELPER = "its unix sockets stay closed, since the helper's is among them"
_ASKED_SOCKETS = ("unix", "tcp", "netlink route", "udp")


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
    objects: Mapping[str, tuple[int, int]] = {}  # device and number of the targets that exist
    loaders: tuple[str, ...] = ()  # what the kernel opens to start others
    helper_lacks: tuple[str, ...] = ()  # of its layers, each with the reason
    to_helper: frozenset[str] = frozenset()  # targets that are its socket, or have it beneath them
    switched_off: tuple[str, ...] = ()  # layers that the operator's settings leave out


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


class Inheritance(Record):
    """What the command finds beside its rights: descriptors, names of variables, limits."""

    kept: tuple[int, ...] = (0, 1, 2)
    closed: tuple[int, ...] = ()  # of those that are open now; all others above 2 would be as well
    passed: tuple[str, ...] = ()  # variables of the caller's
    asked_for: tuple[str, ...] = ()  # those of them that look like secrets and were to be kept
    withheld: tuple[str, ...] = ()
    own: tuple[str, ...] = ()  # variables that the launcher sets
    limits: tuple[tuple[str, int], ...] = ()


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
    loaders: tuple[str, ...] = ()  # with a broker: not to be started themselves, but for a rule
    inheritance: Inheritance = Inheritance()

    @property
    def level(self) -> str:
        """Say how much of the policy the kernel holds: full, partial or none."""
        if not self.abi and not self.seccomp:
            return NONE
        return PARTIAL if self.missing else FULL


def make_plan(
    rules: Sequence[Rule], facts: Facts, *, dials: bool = True, stat_as_read: bool = False
) -> Plan:
    """Turn rules into rights, for a host with these facts; say whether the broker may dial."""
    able = landlock.abilities(facts.abi)
    broker = dials and _has_broker(facts)
    network = NetworkPlan(rules, facts.abi, helper=facts.helper, broker=broker)
    modifiable = _targets(rules, "modify")
    return Plan(
        abi=facts.abi,
        seccomp=facts.seccomp,
        rules=tuple(
            _seen_too(planned) if stat_as_read and _can_broker(facts) else planned
            for planned in _sockets_apart(
                [_rule_plan(rule, modifiable, facts, network) for rule in rules], facts
            )
        ),
        paths=tuple(_paths(rules, facts)),
        ports=tuple(network.ports(able.network)),
        handled=landlock.Abilities(able.filesystem, network.handled(able.network), able.scopes),
        endpoints=tuple((endpoint.host, endpoint.port) for endpoint in network.endpoints),
        by_address=network.by_address,
        sockets=tuple(_sockets(rules, facts, network)),
        brokered=(
            *_brokered(rules, modifiable, facts, stat_as_read=stat_as_read),
            *_peers(rules, facts, network),
        ),
        missing=(*_missing(facts, network, rules), *_unseen(facts, stat_as_read=stat_as_read)),
        notes=(*_notes(rules, facts), *network.notes()),
        loaders=facts.loaders,
    )


def with_questions(plan: Plan) -> Plan:
    """Open what a person can be asked about: sockets exist, and whom they reach is judged.

    Where the helper holds addresses it goes on doing so, and what it refuses is asked there.
    """
    if plan.by_address or not plan.seccomp or not plan.abi:
        return plan
    sockets = (*plan.sockets, *(each for each in _ASKED_SOCKETS if each not in plan.sockets))
    kinds = (each for each in (CONNECT, SOCKET_PATHS, NAMES) if each not in plan.brokered)
    return _changed(plan, sockets=sockets, brokered=(*plan.brokered, *kinds))


def with_inheritance(plan: Plan, inheritance: Inheritance) -> Plan:
    """Say in the plan what the command will find, for whoever reads it."""
    return _changed(plan, inheritance=inheritance)


def with_notes(plan: Plan, notes: Sequence[str]) -> Plan:
    """Add what is not enforced and must not be passed over."""
    return _changed(plan, notes=(*plan.notes, *notes)) if notes else plan


def _changed(plan: Plan, **values: object) -> Plan:
    fields = dict(zip(Plan._fields, plan, strict=True))
    return Plan(**{**fields, **values})  # type: ignore[arg-type]


def _rule_plan(
    rule: Rule, modifiable: frozenset[str], facts: Facts, network: NetworkPlan
) -> RulePlan:
    if rule.resource_type == NETWORK:
        label = BROKERED if network.is_brokered(rule) else GUARD_ONLY
        return RulePlan(rule, EXACT if network.is_exact(rule) else label, network.held_by(rule))
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
    if kind == SOCKET and rule.operation == "modify":
        if rule.target in facts.to_helper:
            return _exact(facts, NOT_TO_HELPER)
        if _judges_paths([rule], facts):
            return BROKERED, BY_PATH
    if kind == MISSING:
        return _exact(facts, "nothing: the path does not exist, so nothing is opened")
    held_by = _HELD_BY if facts.notifications else _HELD_WITHOUT_BROKER
    return _exact(facts, held_by.get(rule.operation, "Landlock"))


_HELD_BY = {
    "modify": "Landlock; the broker for modes, owners, times and attributes",
    "delete": "Landlock; the broker for the path itself",
    "execute": "Landlock; what can be started can also be read",
}
_HELD_WITHOUT_BROKER = {
    **_HELD_BY,
    "modify": "Landlock; without a broker modes, owners, times and attributes stay closed",
    "delete": "Landlock; without a broker the path itself stays",
}


def _through_broker(facts: Facts, why: str) -> tuple[str, str]:
    if not facts.notifications:
        return GUARD_ONLY, f"{why}, and this kernel has no broker: stays closed"
    return BROKERED, why


def _can_broker(facts: Facts) -> bool:
    return facts.notifications and bool(facts.abi)


def _sockets_apart(plans: Sequence[RulePlan], facts: Facts) -> Iterator[RulePlan]:
    """Say of folders that no socket beneath them can be talked to, and why."""
    named = _declares_socket([planned.rule for planned in plans], facts)
    for rule, label, held_by in plans:
        folder = rule.operation == "modify" and facts.kinds.get(rule.target) == DIRECTORY
        why = _without_sockets(rule, facts, named=named) if folder else ""
        yield RulePlan(rule, label, f"{held_by}; {why}" if why else held_by)


def _without_sockets(rule: Rule, facts: Facts, *, named: bool) -> str:
    if 0 < facts.abi < _ABI_UNIX:
        return NO_SOCKETS if facts.seccomp and not named else ""
    beside = bool(facts.abi) and rule.target in facts.to_helper
    return NOT_BESIDE_HELPER if beside and not _has_broker(facts) else ""


def _seen_too(planned: RulePlan) -> RulePlan:
    """Say of a rule that reads who holds what can be seen without opening."""
    if planned.rule.operation != "read":
        return planned
    return RulePlan(planned.rule, planned.label, f"{planned.held_by}; the broker for stat")


def _unseen(facts: Facts, *, stat_as_read: bool) -> Iterator[str]:
    if stat_as_read and not _can_broker(facts):
        yield "stat as read: this kernel has no broker"


def _brokered(
    rules: Sequence[Rule], modifiable: frozenset[str], facts: Facts, *, stat_as_read: bool
) -> Iterator[str]:
    """Yield the kinds of calls that Landlock cannot judge for these rules."""
    if not _can_broker(facts):
        return
    if stat_as_read:
        yield "look"
    own = [rule for rule in rules if rule.resource_type == FILESYSTEM]
    if any(_is_new_only(rule, modifiable, facts) for rule in own):
        yield "create"
    doomed = {facts.kinds[rule.target] for rule in own if rule.operation == "delete"}
    if doomed - {DIRECTORY}:
        yield "delete"
    elif doomed:
        yield "delete folder"
    if modifiable:
        yield "metadata"


def _peers(rules: Sequence[Rule], facts: Facts, network: NetworkPlan) -> Iterator[str]:
    """Yield the kinds of calls with an address that must be judged."""
    if network.by_broker:
        yield CONNECT
    if _judges_paths(rules, facts) or (network.by_broker and facts.abi >= _ABI_UNIX):
        yield SOCKET_PATHS
    if network.by_broker and network.has_suffixes:
        yield NAMES


def _judges_paths(rules: Sequence[Rule], facts: Facts) -> bool:
    """Tell whether the broker must judge which pathname sockets are connected to.

    Where Landlock can, it cannot leave out one socket of a folder, and that is the helper's.
    """
    if facts.abi < _ABI_UNIX:
        return _declares_socket(rules, facts) and _has_broker(facts)
    return _has_broker(facts) and any(
        rule.target in facts.to_helper
        and rule.operation == "modify"
        and facts.kinds[rule.target] == DIRECTORY
        for rule in rules
    )


def _has_broker(facts: Facts) -> bool:
    return bool(facts.notifications and facts.abi)


def _is_new_only(rule: Rule, modifiable: frozenset[str], facts: Facts) -> bool:
    if rule.operation != "create":
        return False
    return facts.kinds[rule.target] != DIRECTORY or not within(rule.target, modifiable)


def _exact(facts: Facts, by: str) -> tuple[str, str]:
    return (EXACT, by) if facts.abi else (GUARD_ONLY, _without(facts, "landlock"))


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
        yield PathRights(path, rights & handled, DECLARED)


def _declared(rules: Sequence[Rule], facts: Facts) -> dict[str, int]:
    declared: dict[str, int] = {}
    for rule in rules:
        if rule.resource_type == FILESYSTEM and facts.kinds[rule.target] != MISSING:
            rights = _rights(rule.operation, facts.kinds[rule.target])
            if rule.target in facts.to_helper:
                rights &= ~landlock.RESOLVE_UNIX
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
    if network.has_names or network.by_address or network.by_broker:
        yield "udp"


def _declares_socket(rules: Sequence[Rule], facts: Facts) -> bool:
    return any(
        rule.resource_type == FILESYSTEM
        and rule.operation == "modify"
        and rule.target not in facts.to_helper
        and facts.kinds[rule.target] == SOCKET
        for rule in rules
    )


_NOT_THERE = {
    "landlock": "this kernel has no Landlock",
    "seccomp": "no seccomp program for this kernel and machine",
}


def _without(facts: Facts, layer: str) -> str:
    """Say why a layer is missing: the settings leave it out, or this host has none."""
    if layer in facts.switched_off:
        return f"sandbox.os.{layer}.enabled is switched off"
    return _NOT_THERE[layer]


def _missing(facts: Facts, network: NetworkPlan, rules: Sequence[Rule]) -> Iterator[str]:
    if not facts.abi:
        yield f"files: {_without(facts, 'landlock')}"
    if not facts.seccomp:
        yield f"system calls, sockets and metadata: {_without(facts, 'seccomp')}"
    is_held = network.by_address or network.by_broker
    if network.by_address:
        yield from facts.helper_lacks
    for rule in () if is_held else network.rules:
        yield f"network {rule.operation} {rule.target}: {network.held_by(rule)}"
    if network.has_names and facts.abi < _ABI_UDP and not is_held:
        yield "UDP: open to every address and port, because names need a resolver"
    if _declares_socket(rules, facts) and facts.abi < _ABI_UNIX and not _has_broker(facts):
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
