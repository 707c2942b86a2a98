"""Who the page lets in, without a browser."""

from __future__ import annotations

from democrai_osguard.ui.gate import VISIT_SECONDS, Gate

ORIGIN = "http://127.0.0.1:8765"


def test_a_link_lets_one_browser_in_once() -> None:
    gate = Gate([ORIGIN])
    link = gate.new_link()
    visit = gate.enter(link)
    assert visit is not None
    assert gate.enter(link) is None
    assert gate.admits(visit.cookie, visit.token)
    assert visit.cookie not in repr(visit)


def test_a_newer_link_ends_the_one_before() -> None:
    gate = Gate([ORIGIN])
    first, second = gate.new_link(), gate.new_link()
    assert gate.enter(first) is None
    assert gate.enter(second) is not None


def test_a_cookie_and_a_token_belong_together() -> None:
    gate = Gate([ORIGIN])
    visits = [gate.enter(gate.new_link()) for _ in range(2)]
    first, second = (visit for visit in visits if visit is not None)
    assert not gate.admits(first.cookie, second.token)
    assert not gate.admits(first.cookie, None)
    assert not gate.admits(None, first.token)
    assert not gate.admits("\ud800", "\ud800")


def test_a_visit_ends() -> None:
    now = [0.0]
    gate = Gate([ORIGIN], clock=lambda: now[0])
    visit = gate.enter(gate.new_link())
    assert visit is not None
    now[0] = VISIT_SECONDS + 1
    assert not gate.knows(visit.cookie)
    assert not gate.admits(visit.cookie, visit.token)


def test_the_oldest_visit_gives_way() -> None:
    gate = Gate([ORIGIN])
    visits = [gate.enter(gate.new_link()) for _ in range(33)]
    known = [gate.knows(visit.cookie) for visit in visits if visit is not None]
    assert known == [False, *[True] * 32]


def test_only_our_own_names_are_ours() -> None:
    gate = Gate([ORIGIN, "https://approvals.example.com"])
    assert gate.is_host("127.0.0.1:8765")
    assert gate.is_host("Approvals.Example.com")
    assert gate.is_origin(ORIGIN)
    for host in (None, "", "127.0.0.1", "127.0.0.1:80", "evil.example", "approvals.example.com.:1"):
        assert not gate.is_host(host)
    for origin in (None, "null", "https://127.0.0.1:8765", "http://approvals.example.com"):
        assert not gate.is_origin(origin)
