from __future__ import annotations

import pytest

from democrai_osguard_helper.endpoints import Endpoint, NameRule, parse_network
from democrai_osguard_helper.names import ANY_NAME, MAX_TTL, MIN_TTL, Answer, NameBook, inside

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
    assert book.name_of(str(PUBLIC)) == "a.example.com"


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
    assert book.due([RULE]) == ()
    clock.time += 1
    assert book.due([RULE]) == ("a.example.com",)


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
    assert not book.learn(Answer(RULE.name, (), "server failure"))
    assert book.addresses([RULE]) == (Endpoint(PUBLIC, 443, "tcp"),)
    assert book.failures([RULE]) == ("a.example.com: server failure",)
    assert book.due([RULE]) == ()


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
    assert book.failures([RULE]) == ("a.example.com: 10.0.0.1 is private",)
    named = NameRule(RULE.name, 443, "tcp", (parse_network("10.0.0.0/8"),))
    assert Endpoint(PRIVATE, 443, "tcp") in book.addresses([named])
    assert book.failures([named]) == ()


def test_a_wildcard_opens_name_servers_only_and_says_so(book: NameBook) -> None:
    rule = NameRule("*.example.com", 443)
    assert (book.unknown([rule]), book.addresses([rule])) == ((ANY_NAME,), ())
    book.resolvers = (parse_network("192.0.2.53"),)
    assert book.unknown([rule]) == ()
    assert book.addresses([rule]) == (Endpoint(parse_network("192.0.2.53"), 53, None),)
    (text,) = book.failures([rule])
    assert text.startswith("*.example.com: opens resolvers only")
