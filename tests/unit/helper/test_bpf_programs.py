"""The programs, run in a tiny interpreter, agree with the policy that they were made from."""

from __future__ import annotations

import ipaddress
import socket
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from unit.helper.machine import Machine

from democrai_osguard_helper import bpf_layer, bpf_programs
from democrai_osguard_helper.bpf_assembly import Assembly
from democrai_osguard_helper.bpf_hooks import HOOKS, Hook
from democrai_osguard_helper.bpf_keys import Maps
from democrai_osguard_helper.bpf_templates import program_for
from democrai_osguard_helper.endpoints import Endpoint, Network
from democrai_osguard_helper.records import Cover

MAPS = Maps(allowed=1, denied=2, listeners=3, flows=4, home=5)
_NUMBERS = {"tcp": 6, "udp": 17}
# Few addresses and ports, so that policies and attempts meet.
_v4 = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.1.0.1", "127.0.0.1", "203.0.113.7"])
_v6 = st.sampled_from(["2001:db8::1", "2001:db8::2", "::1", "fd00::1", "::ffff:10.0.0.1", "::"])
_ports = st.sampled_from([1, 53, 443])
_words = st.sampled_from(["tcp", "udp"])


@st.composite
def _endpoints(draw: st.DrawFn) -> Endpoint:
    text = draw(st.one_of(_v4, _v6.filter(lambda text: "ffff" not in text)))
    packed = ipaddress.ip_address(text).packed
    prefix = draw(st.integers(0, 8 * len(packed)))
    network = ipaddress.ip_network((packed, prefix), strict=False)
    port = draw(st.one_of(st.none(), _ports))
    return Endpoint(
        Network(network.network_address.packed, prefix), port, draw(st.one_of(st.none(), _words))
    )


_policies = st.lists(_endpoints(), max_size=4)


def _machine(policy: list[Endpoint], context: bytes, packet: bytes = b"") -> Machine:
    maps: dict[int, dict[bytes, int]] = {1: dict.fromkeys(bpf_layer.keys(policy), 1)}
    return Machine(context, {**maps, 2: {}, 3: {}, 4: {}, 5: {}}, trie=1, packet=packet)


def _address_context(packed: bytes, port: int, protocol: int) -> bytes:
    v4 = packed if len(packed) == 4 else bytes(4)
    v6 = packed if len(packed) == 16 else bytes(16)
    head = struct.pack("<I", 2) + v4 + v6 + struct.pack(">H", port) + bytes(2)
    return head + struct.pack("<III", 2, 1, protocol) + bytes(64)


def _judged(packed: bytes) -> bytes:
    mapped = ipaddress.ip_address(packed)
    inner = getattr(mapped, "ipv4_mapped", None)
    return inner.packed if inner is not None else packed


@given(_policies, st.one_of(_v4, _v6), _ports, _words)
def test_a_connect_is_judged_as_the_policy_says(
    policy: list[Endpoint], address: str, port: int, word: str
) -> None:
    packed = ipaddress.ip_address(address).packed
    build = bpf_programs.address_v4 if len(packed) == 4 else bpf_programs.address_v6
    machine = _machine(policy, _address_context(packed, port, _NUMBERS[word]))
    allowed = machine.run(build(MAPS))
    assert bool(allowed) is Cover(policy).covers(_judged(packed), port, word)
    assert bool(machine.maps[2]) is not bool(allowed)


@given(_policies, st.one_of(_v4, _v6.filter(lambda t: "ffff" not in t)), _ports, _words)
def test_a_packet_is_judged_as_the_policy_says(
    policy: list[Endpoint], address: str, port: int, word: str
) -> None:
    packed = ipaddress.ip_address(address).packed
    packet = _packet(packed, port, _NUMBERS[word])
    machine = _machine(policy, bytes(192), packet)
    allowed = machine.run(bpf_programs.packet_egress(MAPS))
    assert bool(allowed) is Cover(policy).covers(packed, port, word)


def _packet(packed: bytes, port: int, protocol: int) -> bytes:
    ports = struct.pack(">HH", 40000, port)
    if len(packed) == 4:
        head = struct.pack(">BBHHHBBH4s", 0x45, 0, 40, 0, 0, 64, protocol, 0, b"\x0a\0\0\x09")
        return head + packed + ports + bytes(16)
    return (
        struct.pack(">IHBB", 0x60000000, 20, protocol, 64) + bytes(16) + packed + ports + bytes(16)
    )


_ALL = [Endpoint(Network(bytes(4), 0)), Endpoint(Network(bytes(16), 0))]
_V4_PACKET = _packet(socket.inet_aton("10.0.0.1"), 443, 6)
_V6_PACKET = _packet(socket.inet_pton(socket.AF_INET6, "2001:db8::1"), 443, 6)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\x45",
        _V4_PACKET[:21],
        _V6_PACKET[:41],
        b"\x46" + _V4_PACKET[1:],  # options
        _V4_PACKET[:6] + b"\x00\x01" + _V4_PACKET[8:],  # a later fragment
        _V4_PACKET[:9] + b"\x01" + _V4_PACKET[10:],  # ICMP
        _V6_PACKET[:6] + b"\x2b" + _V6_PACKET[7:],  # a routing header
        _V6_PACKET[:6] + b"\x2c" + _V6_PACKET[7:],  # a fragment header
        b"\x55" + _V4_PACKET[1:],  # no such version
    ],
)
def test_a_packet_without_a_port_to_judge_is_refused_even_where_all_is_open(packet: bytes) -> None:
    assert _machine(_ALL, bytes(192), packet).run(bpf_programs.packet_egress(MAPS)) == 0


@pytest.mark.parametrize("packet", [_V4_PACKET, _V6_PACKET])
def test_the_same_packets_whole_are_allowed(packet: bytes) -> None:
    assert _machine(_ALL, bytes(192), packet).run(bpf_programs.packet_egress(MAPS)) == 1


@given(st.binary(max_size=80))
@example(_V4_PACKET)
def test_no_bytes_confuse_the_packet_program(packet: bytes) -> None:
    machine = _machine([], bytes(192), packet)
    assert machine.run(bpf_programs.packet_egress(MAPS)) == 0


@pytest.mark.parametrize("kind", range(1, 11))
@pytest.mark.parametrize("protocol", [0, 1, 6, 17, 33, 58, 132, 136, 255, 262])
def test_only_plain_tcp_and_udp_sockets_are_made(kind: int, protocol: int) -> None:
    context = struct.pack("<IIII", 0, 2, kind, protocol) + bytes(64)
    made = _machine(_ALL, context).run(bpf_programs.socket_create(MAPS))
    assert bool(made) is ((kind, protocol) in {(1, 6), (2, 17)})


def test_every_hook_says_why_and_stands_once() -> None:
    assert len({hook.attach_type for hook in HOOKS}) == len(HOOKS)
    assert all(hook.why and hook.build(MAPS) for hook in HOOKS)


def test_a_label_stands_once() -> None:
    program = Assembly()
    program.label("x")
    with pytest.raises(ValueError, match="twice"):
        program.label("x")


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_a_template_gives_the_program_that_building_it_gives(hook: Hook) -> None:
    for maps in (MAPS, Maps(allowed=900, denied=70_000, listeners=5, flows=0, home=6)):
        assert program_for(hook.build, maps) == hook.build(maps)
