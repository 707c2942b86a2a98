from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from unit.targets.address_vectors import NORMAL_ADDRESSES, REFUSED_ADDRESSES
from unit.targets.host_vectors import NORMAL_HOSTS, REFUSED_HOSTS
from unit.targets.url_vectors import NORMAL_URLS, REFUSED_URLS

from democrai_osguard import TargetError, covers, normalize_target

TABLES = (
    *(NORMAL_HOSTS, NORMAL_ADDRESSES, NORMAL_URLS),
    *(REFUSED_HOSTS, REFUSED_ADDRESSES, REFUSED_URLS),
)
SEEDS = tuple(row.text for table in TABLES for row in table if len(row.text) < 300)

ODD = ".:/%[]@#?*\\-_0x7f\u00fc\u00df\u3002\uff0f\uff11\u2100\u034f \n\0a;2eE"
PIECES = ("..", "%2e", "%2F", "%25", ";", "%3b", "/", "a", "%5c", ".", "%c0%ae", "?", "v1", "%41")

numbers = st.integers(0, 2**33).flatmap(
    lambda number: st.sampled_from([str(number), hex(number), f"0{number:o}"])
)
dotted = st.lists(
    st.one_of(numbers, st.integers(0, 256).map(str), st.sampled_from(["0x7f", "0177", "1"])),
    min_size=1,
    max_size=5,
).map(".".join)
hosts = st.one_of(
    st.sampled_from(["example.com", "*.example.com", "localhost", "b\u00fccher.example"]),
    dotted,
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
    st.ip_addresses().map(str),
    st.text(ODD, max_size=6).map(lambda text: f"a{text}.example"),
    st.text(max_size=5),
)
ports = st.one_of(st.just(""), st.integers(0, 70_000).map(lambda port: f":{port}"))
paths = st.lists(st.sampled_from(PIECES), max_size=6).map(lambda parts: "/" + "".join(parts))
urls = st.builds(
    lambda scheme, host, port, path: f"{scheme}{host}{port}{path}",
    st.sampled_from(["https://", "HTTP://", "tcp://", ""]),
    hosts,
    ports,
    st.one_of(st.just(""), paths),
)
mutations = st.builds(
    lambda seed, place, piece: seed[:place] + piece + seed[place:],
    st.sampled_from(SEEDS),
    st.integers(0, 40),
    st.text(ODD, min_size=1, max_size=2),
)
few = st.builds(
    lambda scheme, host, port, path: f"{scheme}{host}{port}{path if scheme else ''}",
    st.sampled_from(["", "https://", "http://"]),
    st.sampled_from(
        ["a.example.com", "*.example.com", "*.a.example.com", "localhost", "192.0.2.7"]
    ),
    st.sampled_from(["", ":443", ":80"]),
    st.sampled_from(["", "/v1", "/v1/x", "/v1/?a"]),
) | st.sampled_from(["192.0.2.0/24", "0.0.0.0/0", "::/0", "127.0.0.0/8"])
texts = st.one_of(urls, mutations, st.text(max_size=20))


def normal_or_none(text: str) -> str | None:
    """Return the normal form, None where the text is refused in the way that it should be."""
    try:
        return normalize_target("network", text)
    except TargetError:
        return None


@given(texts)
@settings(max_examples=500, deadline=None)
def test_normalising_twice_changes_nothing(text: str) -> None:
    normal = normal_or_none(text)
    assert normal is None or normalize_target("network", normal) == normal


@given(texts)
@settings(max_examples=400, deadline=None)
def test_a_normal_target_is_plain_ascii_without_dot_segments(text: str) -> None:
    normal = normal_or_none(text) or "example.com"
    assert normal.isascii()
    assert normal.isprintable()
    assert not {"\\", " ", "#"}.intersection(normal)
    path = normal.partition("?")[0]
    assert "@" not in path.partition("://")[2].partition("/")[0]
    assert not {".", ".."}.intersection(path.split("/"))


@given(texts)
@settings(max_examples=250, deadline=None)
def test_a_target_covers_itself(text: str) -> None:
    assert normal_or_none(text) is None or covers("network", text, text)


@given(st.lists(few, min_size=3, max_size=3))
@settings(max_examples=400, deadline=None)
def test_covering_is_transitive(targets: list[str]) -> None:
    one, two, three = sorted(targets, key=len)
    if covers("network", one, two) and covers("network", two, three):
        assert covers("network", one, three)


@given(st.sampled_from(["/v1", "/v1/a", "/"]), paths)
@settings(max_examples=800, deadline=None)
def test_a_path_that_is_covered_lies_beneath_for_the_laxest_server(rule: str, path: str) -> None:
    site = "https://example.com"
    if normal_or_none(site + path) is None or not covers("network", site + rule, site + path):
        return
    normal = normalize_target("network", site + path).partition("?")[0]
    kept = [part for part in normal.split("/")[3:] if part]
    assert ".." not in kept
    assert "/".join(["", *kept]).startswith(rule.rstrip("/"))
