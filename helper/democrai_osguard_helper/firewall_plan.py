"""The firewall of an instance as text for iptables-restore and ipset restore. Pure.

OUTPUT has one jump, for the cgroup of the instance. Its chain sends each box to the box's own
chain and refuses what is in no box. A box's chain returns for what its sets name, so that the
host's other rules still have their say, and refuses the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .endpoints import EndpointError, Network, parse_network

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .cgroups import Box
    from .endpoints import Endpoint

VERSIONS: Final = (4, 6)
MIN_HASH: Final = 64
MAX_ENTRIES: Final = 65536
MAX_DENIALS: Final = 64
_FAMILY: Final = {4: "inet", 6: "inet6"}
_REJECT: Final = {4: "icmp-port-unreachable", 6: "icmp6-adm-prohibited"}
_TYPES: Final = {"t": "hash:net", "u": "hash:net", "p": "hash:net,port", "d": "hash:ip,port"}
_PROTOCOLS: Final = {"tcp": ("tcp",), "udp": ("udp",), None: ("tcp", "udp")}
_PORT: Final = re.compile(r"(?:tcp|udp):[1-9][0-9]{0,4}")
_KIND: Final = {"tcp": "t", "udp": "u"}

Entries = dict[str, frozenset[str]]  # "t4" → the lines' last words


@dataclass(frozen=True, slots=True)
class Names:
    """What an instance calls its chains and sets; no other instance uses these names."""

    instance: str
    tree: str  # the folder of the instance below the root of the v2 tree

    @property
    def chain(self) -> str:
        """The chain of the instance."""
        return f"OSG-{self.instance}"

    def box_chain(self, name: str) -> str:
        """Return the chain of a box."""
        return f"OSG-{self.instance}-{name}"

    def set(self, name: str, kind: str) -> str:
        """Return a set of a box: t, u, p or d, with 4 or 6."""
        return f"osg-{self.instance}-{name}-{kind}"

    def box_of(self, text: str) -> str | None:
        """Return the box that a chain or a set belongs to; None for what is not ours."""
        for prefix in (self.box_chain(""), self.set("", "")[:-1]):
            if text.startswith(prefix):
                return text.removeprefix(prefix).split("-", 1)[0]
        return None


def jump(names: Names) -> str:
    """Return the one rule outside our own chains."""
    return f"OUTPUT -m cgroup --path {names.tree} -j {names.chain}"


def box_rules(names: Names, box: Box, version: int, *, report: bool) -> list[str]:
    """Return the rules of one box, in the form in which iptables-save prints them."""
    chain = names.box_chain(box.name)
    sets = {kind: names.set(box.name, f"{kind}{version}") for kind in _TYPES}
    note = [f"-A {chain} -j SET --add-set {sets['d']} dst,dst"] if report else []
    return [
        f"-A {chain} -p tcp -m set --match-set {sets['t']} dst -j RETURN",
        f"-A {chain} -p udp -m set --match-set {sets['u']} dst -j RETURN",
        f"-A {chain} -m set --match-set {sets['p']} dst,dst -j RETURN",
        *note,
        *_refusal(chain, version),
    ]


def prepare_text(names: Names, box: Box, version: int, *, report: bool) -> str:
    """Close one more box."""
    chain = names.box_chain(box.name)
    rules = box_rules(names, box, version, report=report)
    return _table([f":{chain} - [0:0]", *rules, f"-I {_entry(names, box)}"])


def whole_text(
    names: Names, boxes: Sequence[Box], version: int, saved: Saved, *, report: bool
) -> str:
    """Write everything of ours anew, in one transaction: the repair, and the start."""
    rules = [line for box in boxes for line in box_rules(names, box, version, report=report)]
    return _table(
        [
            f":{names.chain} - [0:0]",
            *(f":{names.box_chain(box.name)} - [0:0]" for box in boxes),
            *rules,
            *(f"-A {_entry(names, box)}" for box in boxes),
            _last_refusal(names.chain, version),
            *_without_jumps(names, saved),
            f"-I {jump(names)}",
        ]
    )


def drop_text(names: Names, boxes: Sequence[Box]) -> str:
    """Remove the chains of boxes that nobody is in."""
    chains = [names.box_chain(box.name) for box in boxes]
    return _table(
        [
            *(f"-D {_entry(names, box)}" for box in boxes),
            *(f"-F {chain}" for chain in chains),
            *(f"-X {chain}" for chain in chains),
        ]
    )


def collect_text(chains: Sequence[str]) -> str:
    """Remove chains that nothing leads to."""
    return _table([*(f"-F {chain}" for chain in chains), *(f"-X {chain}" for chain in chains)])


def remove_text(names: Names, saved: Saved) -> str:
    """Remove the jump and our chain, as far as they are there: the end of an instance."""
    chains = [chain for chain in saved.chains() if chain == names.chain]
    return _table(
        [
            *_without_jumps(names, saved),
            *(f"-F {chain}" for chain in chains),
            *(f"-X {chain}" for chain in chains),
        ]
    )


class Saved:
    """What iptables-save said about the filter table."""

    def __init__(self, text: str) -> None:
        self._chains: dict[str, list[str]] = {}
        for raw in text.splitlines():
            line = raw.replace('"', "")  # a path with a slash is printed in quotes
            if line.startswith(":"):
                self._chains.setdefault(line[1:].split(" ", 1)[0], [])
            elif line.startswith("-A "):
                chain = line.split(" ", 2)[1]
                self._chains.setdefault(chain, []).append(line.removeprefix("-A "))

    def rules(self, chain: str) -> list[str]:
        """Return the rules of a chain, without the leading option."""
        return self._chains.get(chain, [])

    def chains(self) -> list[str]:
        """Return the names of all chains."""
        return list(self._chains)


def entered(names: Names, saved: Saved, version: int) -> bool:
    """Tell whether packets reach our chain first, and find its end closed."""
    rules = saved.rules("OUTPUT")
    if jump(names) not in rules:
        return False
    # Another instance may stand in front of us: its jump is for its own cgroups only.
    first = all(" -j OSG-" in line for line in rules[: rules.index(jump(names))])
    last = _last_refusal(names.chain, version).removeprefix("-A ")
    return first and saved.rules(names.chain)[-1:] == [last]


def holds(names: Names, saved: Saved, box: Box, version: int, *, report: bool) -> bool:
    """Tell whether the rules of the box are exactly what they should be."""
    wanted = [line.removeprefix("-A ") for line in box_rules(names, box, version, report=report)]
    chain = saved.rules(names.box_chain(box.name))
    return chain == wanted and _entry(names, box) in saved.rules(names.chain)


def entries(endpoints: Iterable[Endpoint]) -> Entries:
    """Sort endpoints into what each set shall hold."""
    found: dict[str, set[str]] = {
        f"{kind}{version}": set() for kind in "tup" for version in VERSIONS
    }
    for network, port, protocol in endpoints:
        for part in _halves(network):
            text, version = str(part), part.version
            for word in _PROTOCOLS[protocol]:
                if port is None:
                    found[f"{_KIND[word]}{version}"].add(text)
                else:
                    found[f"p{version}"].add(f"{text},{word}:{port}")
    return {kind: frozenset(words) for kind, words in found.items()}


def create_text(names: Names, box: Box, *, report: bool) -> str:
    """Make the sets of a box, empty; those that exist stay as they are."""
    kinds = "tupd" if report else "tup"
    return "".join(
        _create(names.set(box.name, f"{kind}{version}"), f"{kind}{version}", 0, " -exist")
        for kind in kinds
        for version in VERSIONS
    )


def change_text(
    names: Names, box: Box, old: Mapping[str, frozenset[str]] | None, new: Entries
) -> str:
    """Fill the sets: by difference, or by swapping a whole set that is unknown or grows a lot."""
    whole = {kind for kind, words in new.items() if old is None or _grows(old[kind], words)}
    swaps = [_swap(names.set(box.name, kind), kind, new[kind]) for kind in sorted(whole)]
    lines = []
    before = old or {}
    for word, keep, other in (("add", new, before), ("del", before, new)):  # new before old
        for kind in keep.keys() - whole:
            name = names.set(box.name, kind)
            lines += [f"{word} {name} {entry} -exist\n" for entry in keep[kind] - other[kind]]
    return "".join([*swaps, *lines])


class Contents:
    """What `ipset save` said: the members of each set, in our own words."""

    def __init__(self, text: str) -> None:
        self._members: dict[str, set[str] | None] = {}
        for line in text.splitlines():
            verb, _, rest = line.partition(" ")
            name, _, rest = rest.partition(" ")
            if verb == "create":
                self._members[name] = set()
            elif verb == "add" and (members := self._members.get(name)) is not None:
                members.add(rest)
                if not _is_our_word(rest):
                    self._members[name] = None  # nobody knows what it holds

    def has(self, name: str) -> bool:
        """Tell whether there is a set of this name."""
        return name in self._members

    def of(self, name: str) -> frozenset[str] | None:
        """Return the members of a set; None where they are not such as we put in."""
        members = self._members.get(name, set())
        return None if members is None else frozenset(members)


def adopt_text(
    names: Names,
    boxes: Sequence[Box],
    wanted: Mapping[str, Entries],
    contents: Contents,
    *,
    report: bool,
) -> str:
    """Bring the sets of all boxes from what they hold to what they should, in one text."""
    texts = []
    for box in boxes:
        kinds = wanted[box.name]
        spares = [f"{names.set(box.name, kind)}n" for kind in kinds]  # a crash left them
        texts.append(destroy_text(spare for spare in spares if contents.has(spare)))
        every = [f"{kind}{v}" for kind in ("tupd" if report else "tup") for v in VERSIONS]
        if not all(contents.has(names.set(box.name, kind)) for kind in every):
            texts.append(create_text(names, box, report=report))
        old = {kind: contents.of(names.set(box.name, kind)) for kind in kinds}
        for kind, words in kinds.items():
            held = old[kind]
            before = None if held is None else {kind: held}
            texts.append(change_text(names, box, before, {kind: words}))
    return "".join(texts)


def destroy_text(sets: Iterable[str]) -> str:
    """Remove sets that no rule mentions."""
    return "".join(f"destroy {name}\n" for name in sets)


def _is_our_word(text: str) -> bool:
    """Tell whether a member of a set is written as `entries` writes it."""
    network, comma, port = text.partition(",")
    try:
        written = str(parse_network(network))
    except EndpointError:
        return False
    return written == network and (not comma or _PORT.fullmatch(port) is not None)


def _grows(old: frozenset[str], new: frozenset[str]) -> bool:
    # A set that grows while it is filled is copied each time: make one of the right size instead.
    return len(new) > max(MIN_HASH, 2 * len(old))


def _swap(name: str, kind: str, words: frozenset[str]) -> str:
    spare = f"{name}n"
    adds = "".join(f"add {spare} {word} -exist\n" for word in sorted(words))
    head = _create(spare, kind, len(words), " -exist") + f"flush {spare}\n"
    return f"{head}{adds}swap {name} {spare}\ndestroy {spare}\n"


def _create(name: str, kind: str, size: int, options: str) -> str:
    slots = max(MIN_HASH, 1 << max(size - 1, 0).bit_length())
    most = MAX_DENIALS if kind[0] == "d" else MAX_ENTRIES
    family = _FAMILY[int(kind[1])]
    limits = f"family {family} hashsize {slots} maxelem {most}"
    return f"create {name} {_TYPES[kind[0]]} {limits}{options}\n"


def _halves(network: Network) -> tuple[Network, ...]:
    if network.prefix:
        return (network,)
    # A set takes no prefix of length 0: write everything as two halves.
    upper = b"\x80" + network.packed[1:]
    return Network(network.packed, 1), Network(upper, 1)


def _without_jumps(names: Names, saved: Saved) -> list[str]:
    return [f"-D {line}" for line in saved.rules("OUTPUT") if line == jump(names)]


def _entry(names: Names, box: Box) -> str:
    # Goto, not jump: what the box's chain returns from goes on in OUTPUT, past our own refusal.
    return f"{names.chain} -m cgroup --path {box.relative} -g {names.box_chain(box.name)}"


def _refusal(chain: str, version: int) -> list[str]:
    # Only a reset ends a refused connect at once: for ICMP, TCP over IPv6 tries again for a second.
    return [
        f"-A {chain} -p tcp -j REJECT --reject-with tcp-reset",
        _last_refusal(chain, version),
    ]


def _last_refusal(chain: str, version: int) -> str:
    return f"-A {chain} -j REJECT --reject-with {_REJECT[version]}"


def _table(lines: Iterable[str]) -> str:
    return "\n".join(["*filter", *lines, "COMMIT", ""])
