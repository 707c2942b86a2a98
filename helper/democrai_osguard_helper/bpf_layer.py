"""Egress held by programs on the cgroup: they stay when the daemon ends, and no flush of a
firewall touches them.

Programs are attached exclusively, so that attaching again replaces in one step and nobody needs
the old descriptor: a restarted daemon fills new maps, then swaps.
"""  # noqa: D205

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from . import bpf_hooks, kernel, sockets
from .bpf_hooks import HOOKS
from .bpf_keys import KEY_BITS, KEY_SIZE, LISTENER_KEY_SIZE, TCP, TRIE_KEY_SIZE, UDP, Maps
from .bpf_templates import program_for
from .endpoints import Network
from .fields import MAX_ENDPOINTS
from .layers import Attempt, LayerFailed

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from .cgroups import Box
    from .endpoints import Endpoint
    from .layers import Policy

MAX_KEYS: Final = 4 * MAX_ENDPOINTS  # two protocols each, and as many again from names
MAX_DENIALS: Final = 64  # different ones that a sandbox can report between two looks
MAX_LISTENERS: Final = 256
MAX_FLOWS: Final = 4096
_ONE_BYTE: Final = b"\1"
_EIGHT_BYTES: Final = b"\1" + bytes(7)
_V4_SIZE: Final = 4
_NUMBERS: Final = {"tcp": (TCP,), "udp": (UDP,), None: (TCP, UDP)}
_PROTOCOL_NAMES: Final = {TCP: "tcp", UDP: "udp"}
_MAPPED: Final = bytes(10) + b"\xff\xff"


@dataclass(slots=True)
class _Held:
    allowed: int
    denied: int
    programs: dict[int, tuple[int, ...]]  # attach type → identities, as they were after attaching
    keys: set[bytes] = field(default_factory=set)

    def close(self) -> None:
        os.close(self.allowed)
        os.close(self.denied)


class BpfLayer:
    """The layer of cgroup-BPF programs."""

    name = "bpf"
    refusal = frozenset({errno.EPERM})

    def __init__(self, hooks: Sequence[bpf_hooks.Hook] = HOOKS) -> None:
        self._hooks = hooks
        self._held: dict[str, _Held] = {}

    def reason(self) -> str:
        """Load every program once, attached nowhere."""
        try:
            self._load_and_close()
        except OSError as error:
            return f"bpf: {error.filename or 'bpf'}: {error.strerror}"
        return ""

    def prepare(self, box: Box) -> None:
        """Attach closed programs, in place of those of an earlier daemon."""
        self._swap(box, ())

    def adopt(self, policies: Sequence[Policy]) -> None:
        """Attach filled programs in place of an earlier daemon's."""
        for box, endpoints in policies:
            self._swap(box, endpoints)

    def apply(self, box: Box, endpoints: Iterable[Endpoint]) -> None:
        """Add the new keys, then take the old ones away; what fails half way is taken back."""
        held, wanted = self._held[box.name], keys(endpoints)
        before = held.keys
        held.keys = before | wanted  # whatever happens, no key is in the map and not in here
        try:
            kernel.map_update(held.allowed, sorted(wanted - before), _ONE_BYTE)
        except OSError as error:
            _take_away(held, before)
            raise LayerFailed(f"bpf: {error.strerror}") from error
        _take_away(held, wanted)

    def intact(self, boxes: Iterable[Box]) -> frozenset[str]:
        """Compare what is attached with what was."""
        return frozenset(box.name for box in boxes if self._is_attached(box))

    def attempts(self, boxes: Iterable[Box]) -> Iterator[tuple[str, tuple[Attempt, ...]]]:
        """Take the counted denials out of the maps."""
        for box in boxes:
            found = self._taken(self._held[box.name])
            if found:
                yield box.name, found

    @staticmethod
    def _taken(held: _Held) -> tuple[Attempt, ...]:
        denied, found = held.denied, list[Attempt]()
        while (key := kernel.map_next(denied, None, KEY_SIZE)) is not None:
            (count,) = struct.unpack("=Q", kernel.map_take(denied, key, 8))
            found.append(_attempt(key, count))
            if len(found) >= MAX_DENIALS:
                break  # the rest waits: a busy sandbox must not keep us here
        return tuple(found)

    def drop(self, boxes: Sequence[Box]) -> None:
        """Close our descriptors; the programs go with the cgroups."""
        for box in boxes:
            held = self._held.pop(box.name, None)
            if held is not None:
                held.close()

    def withdraw(self, boxes: Iterable[Box]) -> None:
        """Take the programs off boxes that another layer holds."""
        for box in boxes:
            with contextlib.suppress(OSError):  # then they stay, and refuse more than they should
                self._detach(box)

    def _detach(self, box: Box) -> None:
        self.drop([box])
        cgroup = os.open(box.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for hook in self._hooks:
                with contextlib.suppress(FileNotFoundError):
                    kernel.prog_detach(cgroup, hook.attach_type)
        finally:
            os.close(cgroup)

    def collect(self, known: frozenset[str]) -> tuple[str, ...]:
        """Forget boxes that are gone; the kernel has freed their programs already."""
        gone = tuple(name for name in self._held if name not in known)
        for name in gone:
            self._held.pop(name).close()
        return gone

    def remove(self) -> None:
        """Programs end with their cgroups: there is nothing to remove."""

    def _swap(self, box: Box, endpoints: Iterable[Endpoint]) -> None:
        try:
            held = self._attach(box, keys(endpoints))
        except OSError as error:
            raise LayerFailed(f"bpf: {error.filename}: {error.strerror}") from error
        old = self._held.get(box.name)
        self._held[box.name] = held
        if old is not None:
            old.close()

    def _attach(self, box: Box, keys: set[bytes]) -> _Held:
        maps = _make_maps()
        cgroup = os.open(box.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            kernel.map_update(maps.allowed, sorted(keys), _ONE_BYTE)
            _remember_own(box, maps)
            for hook in self._hooks:
                self._attach_one(hook, cgroup, maps)
            kinds = [hook.attach_type for hook in self._hooks]
            ids = {kind: kernel.prog_ids(cgroup, kind) for kind in kinds}
        except OSError:
            os.close(maps.allowed)
            os.close(maps.denied)
            raise
        finally:
            os.close(cgroup)
            for descriptor in _shared(maps):
                os.close(descriptor)
        return _Held(maps.allowed, maps.denied, ids, keys)

    @staticmethod
    def _attach_one(hook: bpf_hooks.Hook, cgroup: int, maps: Maps) -> None:
        code = program_for(hook.build, maps)
        program = kernel.prog_load(hook.program_type, hook.attach_type, code, f"osg_{hook.name}")
        try:
            kernel.prog_attach(cgroup, program, hook.attach_type)
        finally:
            os.close(program)

    def _load_and_close(self) -> None:
        maps = _make_maps()
        try:
            for hook in self._hooks:
                code = program_for(hook.build, maps)
                name = f"osg_{hook.name}"
                os.close(kernel.prog_load(hook.program_type, hook.attach_type, code, name))
        finally:
            for descriptor in (*_shared(maps), maps.allowed, maps.denied):
                os.close(descriptor)

    def _is_attached(self, box: Box) -> bool:
        held = self._held.get(box.name)
        if held is None:
            return False
        try:
            cgroup = os.open(box.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return all(kernel.prog_ids(cgroup, kind) == ids for kind, ids in held.programs.items())
        finally:
            os.close(cgroup)


def _take_away(held: _Held, wanted: set[bytes]) -> None:
    """Leave only what is wanted of the keys that may be there."""
    try:
        kernel.map_delete(held.allowed, sorted(held.keys - wanted))
    except OSError as error:
        raise LayerFailed(f"bpf: {error.strerror}") from error
    held.keys = wanted


def _make_maps() -> Maps:
    made: list[int] = []
    try:
        for kind, key, value, entries, name in (
            (kernel.MAP_LPM_TRIE, TRIE_KEY_SIZE, 1, MAX_KEYS, "osg_allowed"),
            (kernel.MAP_HASH, KEY_SIZE, 8, MAX_DENIALS, "osg_denied"),
            (kernel.MAP_HASH, LISTENER_KEY_SIZE, 8, MAX_LISTENERS, "osg_listeners"),
            (kernel.MAP_HASH, 8, 8, MAX_FLOWS, "osg_flows"),
            (kernel.MAP_HASH, 8, 8, 1, "osg_home"),
        ):
            made.append(kernel.map_create(kind, key, value, entries, name))
    except OSError:
        for descriptor in made:
            os.close(descriptor)
        raise
    return Maps(*made)


def _shared(maps: Maps) -> tuple[int, ...]:
    """Return the maps that the programs alone need, once they are attached."""
    return maps.listeners, maps.flows, maps.home


def _remember_own(box: Box, maps: Maps) -> None:
    """Fill in what is the sandbox's own: its cgroup, and what it listens on already.

    Listeners in another network namespace than ours cannot be seen: those are closed until they
    listen again.
    """
    kernel.map_update(maps.home, [struct.pack("=Q", box.identity())], _EIGHT_BYTES)
    if not box.populated():
        return
    found = sockets.of_cgroup(box.identity(), "tcp")
    listeners = Counter(_own_key(item) for item in found if item.is_listening)
    for key, count in listeners.items():
        name = struct.pack("=Q", sockets.namespace()) + key
        kernel.map_update(maps.listeners, [name], struct.pack("=Q", count))
    flows = [struct.pack("=Q", item.cookie) for item in found if _is_accepted(item, listeners)]
    kernel.map_update(maps.flows, flows, _EIGHT_BYTES)


def _own_key(item: sockets.Open) -> bytes:
    return _sixteen(item.local) + _head(item.local_port, TCP, item.local)


def _is_accepted(item: sockets.Open, listeners: Container[bytes]) -> bool:
    # What was accepted by a listener that has ended since is not told apart any more, and ends.
    if item.is_listening or not item.is_loopback:
        return False
    every = replace(item, local=bytes(len(item.local)))
    return _own_key(item) in listeners or _own_key(every) in listeners


def _head(port: int, protocol: int, packed: bytes) -> bytes:
    return struct.pack(">HBB", port, protocol, 4 if len(packed) == _V4_SIZE else 6)


def _sixteen(packed: bytes) -> bytes:
    return _MAPPED + packed if len(packed) == _V4_SIZE else packed


def keys(endpoints: Iterable[Endpoint]) -> set[bytes]:
    """Return the keys of the trie, one for each protocol of each endpoint. Pure."""
    keys = set()
    for network, port, protocol in endpoints:
        packed, prefix = network
        length = KEY_BITS - 8 * len(packed) + prefix
        for number in _NUMBERS[protocol]:
            head = struct.pack("=I", length) + _head(port or 0, number, packed)
            keys.add(head + _sixteen(packed))
    return keys


def _attempt(key: bytes, count: int) -> Attempt:
    port, protocol, family = struct.unpack(">HBB", key[:4])
    packed = key[16:] if family == 4 else key[4:]  # noqa: PLR2004 - as the programs write it
    address = str(Network(packed, 8 * len(packed)))
    return Attempt(address, port, _PROTOCOL_NAMES.get(protocol, str(protocol)), count)
