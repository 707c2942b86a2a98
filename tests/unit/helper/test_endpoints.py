from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard_helper.endpoints import (
    EndpointError,
    Network,
    parse_name,
    parse_network,
)

_addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


@st.composite
def _networks(draw: st.DrawFn) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    address = draw(_addresses)
    prefix = draw(st.integers(0, address.max_prefixlen))
    return ipaddress.ip_network((address, prefix), strict=False)


@given(_networks())
def test_a_network_is_read_as_the_standard_library_reads_it(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
) -> None:
    found = parse_network(str(network))
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None and network.prefixlen >= 96:
        assert (found.packed, found.prefix) == (mapped.packed, network.prefixlen - 96)
    else:
        assert (found.packed, found.prefix) == (network.network_address.packed, network.prefixlen)
    assert parse_network(str(found)) == found


@given(_networks(), _addresses)
def test_covering_is_membership(
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    own = Network(network.network_address.packed, network.prefixlen)
    other = Network(address.packed, address.max_prefixlen)
    assert own.covers(other) is (address in network)


@pytest.mark.parametrize(
    "text",
    [
        *("", "127.1", "0x7f.1", "2130706433", "010.0.0.1", "1.2.3.4/33", "1.2.3.4/", "1.2.3.4/-1"),
        *("1.2.3.4/08", "1.2.3.4/8", "fe80::1%eth0", "::1/129", "::/00", "1.2.3.4 ", "[::1]"),
        *("example.com", "1.2.3.4\0", "1.2.3.4\nflush", "\udcff", "\u0661.2.3.4", "1.2.3.4/\u0663"),
    ],
)
def test_what_two_readers_could_read_differently_is_no_network(text: str) -> None:
    with pytest.raises(EndpointError):
        parse_network(text)


@pytest.mark.parametrize("name", ["example.com", "a", "xn--bcher-kva.de", "_srv.x.y", "*.a.b"])
def test_a_name_in_normal_form_is_taken(name: str) -> None:
    assert parse_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "a.", ".a", "a..b", "A.b", "bücher.de", "-a.b", "a-.b", "a b", "a\0", "a/b"),
        *("1.2.3.4", "1", "a.1", "0x7f000001", "a.0x1", "*", "*.com", "*.*.a.b", "a.*.b", "x" * 64),
        ".".join(["abcdefg"] * 40),
    ],
)
def test_a_name_that_is_not_in_normal_form_is_refused(name: str) -> None:
    with pytest.raises(EndpointError):
        parse_name(name)
