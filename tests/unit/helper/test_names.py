from __future__ import annotations

from dataclasses import replace

import pytest

from democrai_osguard_helper import crowd
from democrai_osguard_helper.answers import (
    MAX_ADDRESSES,
    MAX_INNER,
    MAX_KEPT,
    MAX_RETRY,
    MAX_TTL,
    MIN_TTL,
    RETRY,
    Answer,
)
from democrai_osguard_helper.endpoints import Endpoint, NameRule, parse_network
from democrai_osguard_helper.fields import MAX_NAMES
from democrai_osguard_helper.inner_addresses import inside
from democrai_osguard_helper.names import ANY_NAME, NameBook, Use
from democrai_osguard_helper.protocol import Subject
from democrai_osguard_helper.records import Record

PUBLIC = parse_network("93.184.216.34")
OTHER = parse_network("93.184.216.35")
PRIVATE = parse_network("10.0.0.1")
RULE = NameRule("a.example.com", 443, "tcp")


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> NameBook:
    return NameBook(clock, refresh_seconds=60)


def _answer(*networks: object, ttl: float = 30) -> Answer:
    return Answer(RULE.name, tuple((network, ttl) for network in networks))  # type: ignore[misc]


def test_a_name_opens_what_it_stands_for_on_the_port_of_its_rule(book: NameBook) -> None:
    assert book.unknown([RULE]) == ("a.example.com",)
    assert book.learn(_answer(PUBLIC))
    assert book.unknown([RULE]) == ()
    assert book.addresses([RULE]) == (Endpoint(PUBLIC, 443, "tcp"),)
    assert book.name_of([RULE], str(PUBLIC)) == "a.example.com"
    assert book.name_of([SECOND], str(PUBLIC)) is None


def test_resolvers_are_open_only_where_there_is_a_name(book: NameBook) -> None:
    book.resolvers = (parse_network("192.0.2.53"),)
    assert book.addresses([]) == ()
    assert book.addresses([RULE]) == (Endpoint(parse_network("192.0.2.53"), 53, None),)


@pytest.mark.parametrize(("ttl", "wait"), [(0, MIN_TTL), (30, 30), (60, 60), (10**9, 60)], ids=str)
def test_a_name_is_asked_again_in_time(
    book: NameBook, clock: Clock, ttl: float, wait: float
) -> None:
    book.learn(_answer(PUBLIC, ttl=ttl))
    clock.time += wait - 1
    assert book.due([Use(RULE, None, 1)]) == ()
    clock.time += 1
    assert book.due([Use(RULE, None, 1)]) == ("a.example.com",)


@pytest.mark.parametrize(("others", "wait"), [((), 20), ((600,), 20), ((7,), 7), ((None,), 20)])
def test_each_sandbox_says_how_old_its_names_may_get(
    book: NameBook, clock: Clock, others: tuple[int | None, ...], wait: float
) -> None:
    book.learn(_answer(PUBLIC, ttl=10**6))
    used = [Use(RULE, refresh, 1) for refresh in (20, *others)]
    clock.time += wait - 1
    assert (book.due(used), book.unknown([RULE], 20)) == ((), ())
    clock.time += 1
    assert book.due(used) == ("a.example.com",)
    clock.time += 20 - wait
    assert book.unknown([RULE], 20) == ("a.example.com",)
    assert book.unknown([RULE]) == ()  # whoever is content with older ones need not ask


def test_an_old_address_stays_for_one_more_round_and_then_goes(
    book: NameBook, clock: Clock
) -> None:
    book.learn(_answer(PUBLIC))
    clock.time += 30
    assert book.learn(_answer(OTHER))
    assert len(book.addresses([RULE])) == 2
    clock.time += 61
    assert book.learn(_answer(OTHER))
    assert book.addresses([RULE]) == (Endpoint(OTHER, 443, "tcp"),)
    clock.time += MAX_TTL
    assert not book.learn(_answer(OTHER))


def test_a_failure_is_reported_and_changes_nothing(book: NameBook, clock: Clock) -> None:
    book.learn(_answer(PUBLIC))
    clock.time += 10_000
    assert book.learn(Answer(RULE.name, (), "server failure"))  # there is something to say
    assert not book.learn(Answer(RULE.name, (), "server failure"))
    assert book.addresses([RULE]) == (Endpoint(PUBLIC, 443, "tcp"),)
    assert book.failures([RULE], ()) == ("a.example.com: server failure",)
    assert book.due([Use(RULE, None, 1)]) == ()


def test_a_family_that_fails_is_reported_and_keeps_what_is_known(
    book: NameBook, clock: Clock
) -> None:
    six = parse_network("2606:4700::1111")
    book.learn(_answer(PUBLIC, six))
    clock.time += 10_000
    book.learn(Answer(RULE.name, ((OTHER, 30),), "IPv6 addresses: server failure"))
    assert {each.network for each in book.addresses([RULE])} == {OTHER, six}
    assert book.failures([RULE], ()) == ("a.example.com: IPv6 addresses: server failure",)
    assert book.unknown([RULE]) == ()  # whoever starts now need not wait for it
    clock.time += RETRY
    assert book.due([Use(RULE, None, 1)]) == ("a.example.com",)
    clock.time += 10_000
    book.learn(_answer(OTHER))
    assert {each.network for each in book.addresses([RULE])} == {OTHER}
    assert book.failures([RULE], ()) == ()


def test_a_name_that_goes_on_failing_is_asked_for_less_and_less(
    book: NameBook, clock: Clock
) -> None:
    for pause in (RETRY, 2 * RETRY, 4 * RETRY, MAX_RETRY, MAX_RETRY):
        book.learn(Answer(RULE.name, (), "server failure"))
        clock.time += pause - 1
        assert book.due([Use(RULE, None, 1)]) == ()
        clock.time += 1
        assert book.due([Use(RULE, None, 1)]) == (RULE.name,)
    book.learn(_answer(PUBLIC))
    book.learn(Answer(RULE.name, (), "server failure"))
    clock.time += RETRY
    assert book.due([Use(RULE, None, 1)]) == (RULE.name,)


SECOND = NameRule("b.example.com", 8443, "tcp")
SERVER = parse_network("192.0.2.53")
OLD = (Endpoint(PUBLIC, 443, "tcp"), Endpoint(OTHER, 8443, "tcp"), Endpoint(SERVER, 53))


def _record(*names: NameRule) -> Record:
    who = ("0123456789ab", 1, 0, Subject("module", "x"), None)
    return Record(*who, (), names, OLD, since=1)


def test_after_a_restart_what_names_opened_stays_until_they_are_answered(book: NameBook) -> None:
    rules, record = (RULE, SECOND), _record(RULE, SECOND)
    assert set(book.standing(record, rules)) == set(OLD)
    book.resolvers = (parse_network("192.0.2.54"),)
    book.learn(Answer(RULE.name, (), "server failure"))
    book.learn(Answer(SECOND.name, ((PRIVATE, 30.0), (PUBLIC, 30.0))))
    assert set(book.standing(record, rules)) == {
        OLD[0], Endpoint(PUBLIC, 8443, "tcp"), Endpoint(parse_network("192.0.2.54"), 53),
    }  # fmt: skip


def test_what_a_name_opened_goes_with_its_rule(book: NameBook) -> None:
    record = _record(RULE, SECOND)
    assert set(book.standing(record, (SECOND,))) == set(OLD[1:])
    assert book.standing(record, ()) == ()
    same = NameRule("c.example.com", 443, "tcp")
    assert OLD[0] not in book.standing(_record(RULE, same), (same,))
    assert OLD[0] not in book.standing(_record(SECOND), (RULE, SECOND))  # never its own


def test_an_inner_address_stays_only_while_the_rule_names_it(book: NameBook) -> None:
    inner = Endpoint(PRIVATE, 443, "tcp")
    named = replace(RULE, within=(parse_network("10.0.0.0/8"),))
    assert book.standing(replace(_record(named), addresses=(inner,)), (named,)) == (inner,)
    assert book.standing(replace(_record(RULE), addresses=(inner,)), (RULE,)) == ()


def test_a_name_nobody_uses_is_forgotten(book: NameBook) -> None:
    book.learn(_answer(PUBLIC))
    assert book.due([]) == ()
    assert book.addresses([RULE]) == ()


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.1.1", "169.254.169.254", "0.1.2.3"),
        *("100.100.100.200", "192.0.0.192", "224.0.0.1", "255.255.255.255", "::1", "::"),
        *("fd00:ec2::254", "fe80::1", "ff02::1", "64:ff9b::a00:1", "2002:a00:1::", "::a00:1"),
    ],
)
def test_an_inner_address_is_known_as_such(text: str) -> None:
    assert inside(parse_network(text))


@pytest.mark.parametrize("text", ["93.184.216.34", "2606:4700::1111", "64:ff9b::5db8:d822"])
def test_an_address_of_the_open_network_is_none(text: str) -> None:
    assert inside(parse_network(text)) == ""


def test_a_name_turns_to_an_inner_address_only_where_its_rule_names_the_range(
    book: NameBook,
) -> None:
    book.learn(_answer(PUBLIC, PRIVATE))
    assert book.addresses([RULE]) == (Endpoint(PUBLIC, 443, "tcp"),)
    assert book.failures([RULE], ()) == ("a.example.com: 10.0.0.1 is private",)
    named = NameRule(RULE.name, 443, "tcp", (parse_network("10.0.0.0/8"),))
    assert Endpoint(PRIVATE, 443, "tcp") in book.addresses([named])
    assert book.failures([named], ()) == ()


@pytest.mark.parametrize(
    ("beside", "port", "protocol", "opens"),
    [
        ("10.0.0.0/8", None, None, True), ("10.0.0.1", 443, "tcp", True),
        ("0.0.0.0/0", 443, None, True), ("10.0.0.0/8", 22, None, False),
        ("10.0.0.0/8", 443, "udp", False), ("10.1.0.0/16", None, None, False),
    ],
)  # fmt: skip
def test_a_name_opens_nothing_in_a_range_that_another_rule_names(
    book: NameBook, beside: str, port: int | None, protocol: str | None, opens: bool
) -> None:
    book.learn(_answer(PUBLIC, PRIVATE))
    assert book.addresses([RULE]) == (Endpoint(PUBLIC, 443, "tcp"),)
    # What the other rule opens on this very port is no reason to complain.
    other = (Endpoint(parse_network(beside), port, protocol),)
    refused = () if opens else ("a.example.com: 10.0.0.1 is private",)
    assert book.failures([RULE], other) == refused


def _inner(turn: int, first: int) -> Answer:
    inner = [parse_network(f"10.{turn}.{first + i // 256}.{i % 256}") for i in range(MAX_ADDRESSES)]
    return Answer(f"n{turn}.example.com", tuple((each, 5.0) for each in inner))


def test_refused_addresses_leave_room_for_others_and_are_told_once_for_each_name(
    book: NameBook, clock: Clock
) -> None:
    rules = [NameRule(f"n{turn}.example.com", 443) for turn in range(MAX_NAMES)]
    for first in (0, 2):
        for turn in range(MAX_NAMES):
            book.learn(_inner(turn, first))
        clock.time += 1
    told = book.failures(rules, ())
    assert len(told) == MAX_NAMES
    assert told[1].endswith(f" is private, and {MAX_INNER - 1} more are inside")
    assert sum(book.name_of(rules, f"10.7.3.{i}") is not None for i in range(256)) == MAX_INNER
    book.learn(_answer(PUBLIC))
    assert book.addresses([RULE]) == (Endpoint(PUBLIC, 443, "tcp"),)


def _many(name: str, first: int) -> Answer:
    places = [parse_network(f"93.{first}.{i // 256}.{i % 256}") for i in range(MAX_ADDRESSES)]
    return Answer(name, tuple((each, 3600.0) for each in places))


@pytest.mark.parametrize("together", [False, True], ids=["names of one's own", "a shared name"])
def test_whose_names_stand_for_too_much_takes_no_room_from_others(
    book: NameBook, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    monkeypatch.setattr(crowd, "MAX_KNOWN_PER_USER", 2 * MAX_KEPT)
    mine = [NameRule(f"m{turn}.example.com") for turn in range(4)]
    uses = [Use(rule, None, 1) for rule in mine] + [Use(RULE, None, 2)]
    book.due([*uses, Use(RULE, None, 1)] if together else uses)
    for turn, rule in enumerate(mine):
        book.learn(_many(rule.name, turn))
    told = book.failures(mine, ())
    assert told == ("m3.example.com: too many addresses are known already",)
    book.learn(_answer(PUBLIC))
    assert book.addresses([RULE]) == (Endpoint(PUBLIC, 443, "tcp"),)


def test_what_a_call_waits_for_is_kept_until_it_is_answered(book: NameBook) -> None:
    book.expect(1, [RULE, SECOND])
    book.learn(_answer(PUBLIC))
    book.due([])
    assert book.addresses([RULE]) == (Endpoint(PUBLIC, 443, "tcp"),)
    book.settle(1, [RULE, SECOND])
    book.due([])
    assert book.addresses([RULE]) == ()


def test_a_wildcard_keeps_the_name_servers_up_to_date(book: NameBook, clock: Clock) -> None:
    rule = NameRule("*.example.com", 443)
    assert book.due([Use(rule, None, 1)]) == (ANY_NAME,)
    book.learn(Answer(ANY_NAME, ((parse_network("127.0.0.1"), 60.0),)))
    assert book.due([Use(rule, None, 1)]) == ()
    clock.time += 60
    assert book.due([Use(rule, None, 1)]) == (ANY_NAME,)


def test_a_wildcard_opens_name_servers_only_and_says_so(book: NameBook) -> None:
    rule = NameRule("*.example.com", 443)
    assert (book.unknown([rule]), book.addresses([rule])) == ((ANY_NAME,), ())
    book.resolvers = (parse_network("192.0.2.53"),)
    assert book.unknown([rule]) == ()
    assert book.addresses([rule]) == (Endpoint(parse_network("192.0.2.53"), 53, None),)
    (text,) = book.failures([rule], ())
    assert text.startswith("*.example.com: opens resolvers only")


def test_answers_that_change_all_the_time_open_a_bounded_number(
    book: NameBook, clock: Clock
) -> None:
    for turn in range(40):
        networks = [parse_network(f"93.{turn}.{number}.1") for number in range(100)]
        book.learn(_answer(*networks, ttl=10**6))
        clock.time += MIN_TTL
    opened = {endpoint.network for endpoint in book.addresses([RULE])}
    assert len(opened) == MAX_KEPT
    assert set(networks) <= opened  # the newest


def test_all_names_together_stand_for_a_bounded_number(
    book: NameBook, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "MAX_KNOWN", MAX_KEPT + 1)
    book.learn(_answer(PUBLIC, OTHER))
    late = NameRule("b.example.com")
    book.learn(Answer(late.name, ((PUBLIC, 30.0),)))
    assert book.failures([late], ()) == ("b.example.com: too many addresses are known already",)
    book.learn(_answer(PUBLIC, OTHER, PRIVATE))  # what is there already is kept up to date
    assert len(book.addresses([RULE])) == 2
    clock.time += 1000
    book.due([Use(late, None, 1)])  # nobody uses the first one any more
    book.learn(Answer(late.name, ((PUBLIC, 30.0),)))
    assert book.addresses([late]) == (Endpoint(PUBLIC, None, None),)
