from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard_helper import fields, protocol
from democrai_osguard_helper.endpoints import Endpoint, NameRule, Network, parse_network
from democrai_osguard_helper.protocol import (
    Confine,
    Denial,
    List,
    ProtocolViolation,
    Release,
    Revoke,
    Subject,
    Update,
)

_networks = st.one_of(
    st.builds(lambda address: parse_network(str(address)), st.ip_addresses()),
    st.builds(
        lambda number, prefix: Network(
            (number >> (32 - prefix) << (32 - prefix)).to_bytes(4, "big"), prefix
        ),
        st.integers(0, 2**32 - 1),
        st.integers(0, 32),
    ),
)
_ports = st.one_of(st.none(), st.integers(1, 65535))
_protocols = st.sampled_from([None, "tcp", "udp"])
_endpoints = st.lists(st.builds(Endpoint, _networks, _ports, _protocols), max_size=5).map(tuple)
_labels = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
_hosts = st.lists(_labels, min_size=2, max_size=4).map(".".join)
_within = st.lists(_networks, max_size=2).map(tuple)
_names = st.lists(st.builds(NameRule, _hosts, _ports, _protocols, _within), max_size=3).map(tuple)
_lines = st.text(min_size=1, max_size=50).filter(str.isprintable)
_ids = st.from_regex(r"[0-9a-f]{12}", fullmatch=True)
_subjects = st.builds(Subject, st.sampled_from(["module", "tool"]), _lines)
_requests = st.one_of(
    st.builds(
        Confine,
        _subjects,
        st.one_of(st.none(), _lines),
        _endpoints,
        _names,
        st.sampled_from(protocol.REQUIRE),
    ),
    st.builds(Update, _ids, _endpoints, _names),
    st.builds(Revoke, _ids, _endpoints, _names),
    st.builds(Release, _ids),
    st.just(List()),
)
_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=10,
)


@given(_requests)
def test_reading_what_was_written_gives_the_same_request(request_: protocol.Request) -> None:
    assert protocol.parse_request(protocol.dump(request_)) == request_


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_violation(payload: bytes) -> None:
    for parse in (protocol.parse_request, protocol.parse_reply):
        with contextlib.suppress(ProtocolViolation):
            parse(payload)


@given(_requests, st.data())
def test_a_request_with_one_value_replaced_is_a_request_or_a_violation(
    request_: protocol.Request, data: st.DataObject
) -> None:
    document = json.loads(protocol.dump(request_))
    spot: Any = document
    while True:
        keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if isinstance(spot[key], dict | list) and data.draw(st.booleans()):
            spot = spot[key]
            continue
        spot[key] = data.draw(_json)
        break
    with contextlib.suppress(ProtocolViolation):
        protocol.parse_request(json.dumps(document).encode())


@given(_requests, st.text(min_size=1), _json)
def test_an_unknown_field_is_a_violation(
    request_: protocol.Request, name: str, value: object
) -> None:
    document = json.loads(protocol.dump(request_))
    if name in document:
        return
    document[name] = value
    with pytest.raises(ProtocolViolation):
        protocol.parse_request(json.dumps(document).encode())


def test_a_reply_is_no_request_and_the_other_way_round() -> None:
    with pytest.raises(ProtocolViolation):
        protocol.parse_reply(protocol.dump(List()))
    denial = Denial("0" * 12, 7, Subject("tool", "x"), None, "192.0.2.1", 1, "tcp", None, 1)
    assert protocol.parse_reply(protocol.dump(denial)) == denial
    with pytest.raises(ProtocolViolation):
        protocol.parse_request(protocol.dump(denial))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"endpoints": [{"network": "x", "port": 1, "protocol": None}]}, "update.endpoints[0]"),
        ({"endpoints": {}}, "update.endpoints"),
        ({"names": [{"name": "A", "port": 1, "protocol": None, "within": []}]}, "update.names[0]"),
        ({"sandbox": "ABC"}, "update.sandbox"),
        ({"follows": "two words"}, "update.follows"),
        ({"extra": 1}, "update: missing or unknown field 'extra'"),
    ],
)
def test_a_violation_names_its_place(change: dict[str, object], place: str) -> None:
    whole: dict[str, object] = {"sandbox": "0" * 12, "endpoints": [], "names": [], "follows": None}
    document = {"call": "update", **whole, **change}
    with pytest.raises(ProtocolViolation, match=r".") as caught:
        protocol.parse_request(json.dumps(document).encode())
    assert str(caught.value).startswith(place)


@pytest.mark.parametrize("seconds", [4, 3601, 60.0, True, "60", -1])
def test_an_age_of_names_has_bounds(seconds: object) -> None:
    subject = {"type": "tool", "name": "x"}
    whole: dict[str, object] = {"subject": subject, "session": None, "require": "full"}
    whole |= {"call": "confine", "endpoints": [], "names": []}
    for fine in (None, 5, 3600):
        document = {**whole, "refresh": fine}
        found = protocol.parse_request(json.dumps(document).encode())
        assert isinstance(found, Confine)
        assert found.refresh == fine
    document = {**whole, "refresh": seconds}
    with pytest.raises(ProtocolViolation, match="refresh: expected 5 to 3600 seconds"):
        protocol.parse_request(json.dumps(document).encode())


def test_the_most_endpoints_fit_into_a_frame_and_one_more_is_refused() -> None:
    endpoint = Endpoint(parse_network("2001:db8:1111:2222:3333:4444:5555:6666"), 65535, "tcp")
    most = (endpoint,) * fields.MAX_ENDPOINTS
    framed = protocol.frame(Update("0" * 12, most, ()))
    assert protocol.parse_request(framed[protocol.HEADER :]) == Update("0" * 12, most, ())
    with pytest.raises(ProtocolViolation, match="at most 16384"):
        protocol.parse_request(protocol.dump(Update("0" * 12, (*most, endpoint), ())))


@pytest.mark.parametrize("length", [0, protocol.MAX_FRAME + 1, 2**32 - 1])
def test_a_frame_has_a_length_within_bounds(length: int) -> None:
    with pytest.raises(ProtocolViolation):
        protocol.frame_length(length.to_bytes(4, "big"))


def test_the_socket_is_where_the_operator_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(protocol.SOCKET_VARIABLE, raising=False)
    assert protocol.socket_path() == "/run/democrai-osguard/helper.sock"
    monkeypatch.setenv(protocol.SOCKET_VARIABLE, "/x/y")
    assert protocol.socket_path() == "/x/y"
