from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard_helper import dns, resolver
from democrai_osguard_helper.endpoints import parse_network
from democrai_osguard_helper.fields import ProtocolViolation
from democrai_osguard_helper.inner_addresses import inside
from democrai_osguard_helper.resolving import parse_answer

ADDRESS = parse_network("93.184.216.34")


def _reply(question: bytes, *records: bytes, flags: int = 0x8180) -> bytes:
    head = question[:2] + struct.pack(">5H", flags, 1, len(records), 0, 0)
    return head + question[12:] + b"".join(records)


def _record(name: bytes, kind: int, ttl: int, body: bytes) -> bytes:
    return name + struct.pack(">HHIH", kind, 1, ttl, len(body)) + body


QUESTION = dns.question(7, "a.example.com", dns.A)
OWN = b"\xc0\x0c"
ALIAS = b"\x01b\xc0\x0e"  # b.example.com


def test_an_answer_is_read_through_its_aliases_with_the_lowest_time() -> None:
    data = _reply(
        QUESTION,
        _record(OWN, dns.CNAME, 20, ALIAS),
        _record(b"\x01b\xc0\x0e", dns.A, 300, ADDRESS.packed),
        _record(b"\x01c\xc0\x0e", dns.A, 300, b"\1\2\3\4"),  # nobody asked about c
    )
    response = dns.parse(data, 7, "a.example.com", dns.A)
    assert response == dns.Response(((ADDRESS, 20),), "", truncated=False)


@pytest.mark.parametrize(
    "data",
    [
        _reply(QUESTION)[:-1],
        b"\0\x08" + _reply(QUESTION)[2:],
        QUESTION,  # a question is no answer
        _reply(dns.question(7, "b.example.com", dns.A)),
        _reply(dns.question(7, "a.example.com", dns.AAAA)),
        _reply(QUESTION, _record(OWN, dns.A, 1, b"\1\2\3\4")[:-1]),
        _reply(QUESTION, b"\xc0" + bytes([len(QUESTION)])),  # a pointer to itself
    ],
)
def test_what_is_no_answer_to_the_question_is_refused(data: bytes) -> None:
    with pytest.raises(dns.BadAnswer):
        dns.parse(data, 7, "a.example.com", dns.A)


def test_an_error_has_a_name() -> None:
    data = _reply(QUESTION, flags=0x8183)
    assert dns.parse(data, 7, "a.example.com", dns.A).error == "no such name"


@given(st.binary(max_size=120))
def test_any_bytes_are_an_answer_or_refused(data: bytes) -> None:
    with contextlib.suppress(dns.BadAnswer):
        dns.parse(_reply(QUESTION) + data, 7, "a.example.com", dns.A)
    with contextlib.suppress(dns.BadAnswer):
        dns.parse(data, 7, "a.example.com", dns.A)


@given(st.binary(max_size=120))
def test_whatever_the_resolver_says_is_an_answer_or_a_violation(data: bytes) -> None:
    with contextlib.suppress(ProtocolViolation):
        parse_answer(data)


def test_name_servers_are_read_as_libc_reads_them() -> None:
    text = "# x\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nsearch a\nnameserver ::1\n"
    assert [str(item) for item in resolver.servers(text)] == ["192.0.2.1", "::1"]
    assert [str(item) for item in resolver.servers("")] == ["127.0.0.1"]


def test_the_hosts_file_is_read() -> None:
    text = "127.0.0.1 localhost\n192.0.2.7 Box.example.com box # x\nbad box\n"
    assert resolver.from_hosts(text, "box.example.com") == [(parse_network("192.0.2.7"), 60)]
    assert [str(a) for a, _ in resolver.from_hosts(text, "box")] == ["192.0.2.7"]


def test_a_forged_answer_does_not_hide_the_true_one() -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(2):
            data, sender = server.recvfrom(512)
            kind = data[-3]
            body = ADDRESS.packed if kind == dns.A else bytes(16)
            answer = _reply(data, _record(OWN, kind, 9, body))
            server.sendto(bytes([data[0] ^ 1]) + answer[1:], sender)
            server.sendto(answer, sender)

    thread = threading.Thread(target=serve)
    thread.start()
    found = resolver.resolve("a.example.com", [parse_network("127.0.0.1")], server.getsockname()[1])
    thread.join()
    server.close()
    assert found == {
        "name": "a.example.com",
        "error": "",
        "addresses": [["93.184.216.34", 9], ["::", 9]],
    }


def test_more_records_than_are_read_are_said() -> None:
    records = [_record(OWN, dns.A, 9, bytes([192, 0, number >> 8, number & 255]))
               for number in range(1000)]  # fmt: skip
    response = dns.parse(_reply(QUESTION, *records), 7, "a.example.com", dns.A)
    assert (len(response.addresses), response.error) == (256, "1000 records, of which 256 are read")


def test_names_that_go_on_and_on_are_refused_at_once() -> None:
    # One label after the other through the whole message, and then from its start again.
    start = len(QUESTION)
    labels = b"\x01a" * 8000 + bytes([0xC0 | start >> 8, start & 255])
    begun = time.process_time()
    with pytest.raises(dns.BadAnswer, match="too long"):
        dns.parse(_reply(QUESTION, labels), 7, "a.example.com", dns.A)
    assert time.process_time() - begun < 1


def test_a_circle_of_aliases_ends() -> None:
    circle = [_record(OWN, dns.CNAME, 1, ALIAS), _record(ALIAS, dns.CNAME, 1, OWN)] * 100
    response = dns.parse(_reply(QUESTION, *circle), 7, "a.example.com", dns.A)
    assert response == dns.Response((), "", truncated=False)


def test_a_mapped_address_is_the_address_that_the_kernel_dials() -> None:
    question = dns.question(7, "a.example.com", dns.AAAA)
    mapped = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1])
    data = _reply(question, _record(OWN, dns.AAAA, 9, mapped))
    ((address, _),) = dns.parse(data, 7, "a.example.com", dns.AAAA).addresses
    line = {"name": "a.example.com", "error": "", "addresses": [[str(address), 9]], "resolvers": []}
    answer, _ = parse_answer(json.dumps(line).encode())
    assert answer.addresses == ((parse_network("10.0.0.1"), 9.0),)
    assert inside(answer.addresses[0][0]) == "private"


def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolver, "TRY_SECONDS", 0.5)
    server, ended = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def drip() -> None:
        client, _ = server.accept()
        with client, contextlib.suppress(OSError):
            client.sendall(b"\xff\xff")
            while not ended.wait(0.05):
                client.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            resolver._over_tcp(  # noqa: SLF001 - the way that is taken for long answers
                QUESTION, parse_network("127.0.0.1"), server.getsockname()[1]
            )
        assert time.monotonic() - begun < 30
    finally:
        ended.set()
        thread.join()
        server.close()
