"""Connections by name: what a name means is asked by the broker, never told by the command.

Everything happens in a network namespace of its own, which has nothing but a loopback.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from host_features import require
from kernel import name_world

from democrai_osguard_helper import inner_addresses as helper_addresses
from democrai_osguard_launcher import destinations
from democrai_osguard_launcher.destinations import Destinations, is_inside
from democrai_osguard_launcher.name_answers import NameAnswers

_ALONE = """
ip link set lo up
for address in $4; do ip addr add "$address" dev lo; done
mount --bind "$1/resolv.conf" /etc/resolv.conf
mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf
test ! -d /run/nscd || mount -t tmpfs tmpfs /run/nscd
exec "$2" "$3"
"""
# What each act should say: one word for each place that it tried.
EXPECTED = {
    "free": "ok ok ok ok",
    "by name": "ok ok ok",
    "other": "EACCES EACCES EACCES EACCES",
    "other port": "EACCES",
    "private": "EACCES",
    "private and named": "ok",
    "below": "ok ok EACCES EACCES",
    "below, looked up otherwise": "ok",
    "below, never looked up": "EACCES",
    "forged": "EACCES",
    "another server": "ok EACCES",
    "curl": "hello",
    "moved": "ok ok ok",
    # Of the name server itself as well: no rule has a name.
    "asked": "ok ok 127.0.0.1:53 evil.test:8080 192.0.2.3:8080",
    "traced": "ok EACCES 192.0.2.2:8080",
    "traced by name": "EACCES evil.test:8080",
    "traced by name, looked up otherwise": "EACCES evil.test:8080",
    "traced inside": "EACCES 10.9.9.9:8080 looked up as",
    "learnt": "ok ok good.test:8080",
    "learnt inside": "ok ok 10.9.9.9:8080 inner.test:8080",
}


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    for feature in ("root", "landlock", "seccomp", "curl"):
        require(feature)
    folder = tmp_path_factory.mktemp("names")
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")
    (folder / "nsswitch.conf").write_text("hosts: files dns\n")
    addresses = " ".join(f"{each}/{128 if ':' in each else 32}" for each in name_world.ADDRESSES)
    words = [str(folder), sys.executable, name_world.__file__, addresses]
    command = ["unshare", "--mount", "--net", "sh", "-ec", _ALONE, "sh", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("act", EXPECTED)
def test_a_name_opens_what_the_broker_finds_for_it(act: str, findings: dict[str, Any]) -> None:
    assert findings[act] == EXPECTED[act]


def test_inner_addresses_are_those_of_the_helper() -> None:
    assert set(destinations.INSIDE) == set(helper_addresses.INSIDE)
    found = {(str(network), place) for network, place in helper_addresses._CARRIERS}  # noqa: SLF001
    assert set(destinations.CARRIERS) == found


@pytest.mark.parametrize(
    ("address", "inner"),
    [
        (b"\x0a\0\0\1", True),
        (b"\xa9\xfe\xa9\xfe", True),
        (b"\xc0\0\2\1", False),
        (bytes.fromhex("0064ff9b00000000000000000a000001"), True),
        (bytes.fromhex("20020a00000100000000000000000001"), True),
        (bytes.fromhex("20010db8" + "00" * 12), False),
        (b"\xff\xff\xff\xff", True),
    ],
)
def test_an_inner_address_is_known(address: bytes, inner: bool) -> None:
    assert is_inside(address) is inner


def test_places_cover_what_they_say() -> None:
    places = Destinations(
        [("localhost", 80), ("Example.COM.", 443), ("*.wild.test", None), ("192.0.2.0/24", None)]
    )
    assert places.allows(b"\x7f\0\0\5", 80)
    assert places.allows(bytes(15) + b"\1", 80)
    assert not places.allows(b"\x7f\0\0\1", 81)
    assert places.allows(b"\xc0\0\2\7", 9)
    assert places.allows_name("example.com", 443)
    assert not places.allows_name("example.com", 80)
    assert not places.allows_name("sub.example.com", 443)
    assert places.allows_name("a.b.wild.test", 1)
    assert not places.allows_name("wild.test", 1)
    assert not places.allows_name("evilwild.test", 1)


def test_answers_are_taken_once_and_asked_for_once() -> None:
    asked: list[str] = []

    def look_up(name: str) -> list[bytes]:
        asked.append(name)
        if name == "none.test":
            raise OSError
        return [b"\xc0\0\2\1"]

    names = NameAnswers(look_up)
    assert names.ask(["one.test", "none.test"])
    while names.is_under_way(["one.test", "none.test"]):
        names.take()
    assert names.stands_for("one.test", b"\xc0\0\2\1")
    assert names.names_of(b"\xc0\0\2\1") == ["one.test"]
    assert not names.stands_for("none.test", b"\xc0\0\2\1")
    assert not names.ask(["one.test", "none.test"])
    assert sorted(asked) == ["none.test", "one.test"]
