from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard_helper import firewall_plan as plan
from democrai_osguard_helper.cgroups import Tree
from democrai_osguard_helper.endpoints import Endpoint, parse_network

TREE = Tree("/sys/fs/cgroup", "main")
NAMES = plan.Names("main", TREE.name)
BOX = TREE.box("0123456789ab")
OTHER = TREE.box("ba9876543210")


def _saved(*boxes: object, version: int = 4, before: str = "") -> plan.Saved:
    """Return what iptables-save would print after the plan was restored."""
    chosen = [box for box in (BOX, OTHER) if box in boxes]
    text = plan.whole_text(NAMES, chosen, version, plan.Saved(""), report=False)
    lines = [line.replace("-I OUTPUT", "-A OUTPUT") for line in text.splitlines()]
    lines = [
        line.replace("--path democrai-osguard-main/", '--path "democrai-osguard-main/')
        for line in lines
    ]
    return plan.Saved("\n".join([":OUTPUT ACCEPT [0:0]", before, *lines]))


def test_the_plan_of_a_box_as_text() -> None:
    sets = "osg-main-0123456789ab"
    assert plan.prepare_text(NAMES, BOX, 4, report=False) == (
        "*filter\n"
        ":OSG-main-0123456789ab - [0:0]\n"
        f"-A OSG-main-0123456789ab -p tcp -m set --match-set {sets}-t4 dst -j RETURN\n"
        f"-A OSG-main-0123456789ab -p udp -m set --match-set {sets}-u4 dst -j RETURN\n"
        f"-A OSG-main-0123456789ab -m set --match-set {sets}-p4 dst,dst -j RETURN\n"
        "-A OSG-main-0123456789ab -p tcp -j REJECT --reject-with tcp-reset\n"
        "-A OSG-main-0123456789ab -j REJECT --reject-with icmp-port-unreachable\n"
        "-I OSG-main -m cgroup --path democrai-osguard-main/0123456789ab"
        " -g OSG-main-0123456789ab\n"
        "COMMIT\n"
    )


def test_names_fit_where_the_kernel_keeps_them() -> None:
    longest = plan.Names("x" * 8, "t")
    assert len(longest.box_chain("0" * 12)) <= 28
    assert len(longest.set("0" * 12, "p6") + "n") <= 31


def test_what_was_restored_is_recognised_and_nothing_less() -> None:
    saved = _saved(BOX)
    assert plan.entered(NAMES, saved, 4)
    assert plan.holds(NAMES, saved, BOX, 4, report=False)
    assert not plan.holds(NAMES, saved, OTHER, 4, report=False)
    assert not plan.holds(NAMES, saved, BOX, 6, report=False)
    assert not plan.entered(NAMES, plan.Saved(""), 4)


def test_a_rule_in_front_of_our_jump_is_drift_unless_it_is_another_instance() -> None:
    assert not plan.entered(NAMES, _saved(BOX, before="-A OUTPUT -j ACCEPT"), 4)
    other = "-A OUTPUT -m cgroup --path democrai-osguard-two -j OSG-two"
    assert plan.entered(NAMES, _saved(BOX, before=other), 4)


def test_writing_anew_removes_each_old_jump_and_adds_one() -> None:
    text = plan.whole_text(NAMES, [BOX], 4, _saved(BOX), report=False)
    jump = "OUTPUT -m cgroup --path democrai-osguard-main -j OSG-main"
    assert (text.count(f"-D {jump}"), text.count(f"-I {jump}")) == (1, 1)


def test_only_our_own_names_are_ours() -> None:
    assert NAMES.box_of("OSG-main-0123456789ab") == "0123456789ab"
    assert NAMES.box_of("osg-main-0123456789ab-p4") == "0123456789ab"
    assert NAMES.box_of("osg-main-0123456789ab-p4n") == "0123456789ab"
    for other in ("OSG-main", "OSG-main2-0123456789ab", "DOCKER", "osg-two-0123456789ab-p4"):
        assert NAMES.box_of(other) is None


def test_each_endpoint_goes_to_the_set_of_its_kind() -> None:
    found = plan.entries(
        [
            Endpoint(parse_network("192.0.2.0/24"), 443, "tcp"),
            Endpoint(parse_network("2001:db8::1"), 53),
            Endpoint(parse_network("192.0.2.1"), None, "udp"),
            Endpoint(parse_network("::/0")),
        ]
    )
    assert {kind: sorted(words) for kind, words in found.items()} == {
        "p4": ["192.0.2.0/24,tcp:443"],
        "p6": ["2001:db8::1,tcp:53", "2001:db8::1,udp:53"],
        "t4": [],
        "t6": ["8000::/1", "::/1"],
        "u4": ["192.0.2.1"],
        "u6": ["8000::/1", "::/1"],
    }


_words = st.frozensets(st.sampled_from(["192.0.2.1", "192.0.2.2", "192.0.2.3"]))


@given(_words, _words)
def test_a_change_adds_before_it_deletes_and_ends_where_it_should(
    old: frozenset[str], new: frozenset[str]
) -> None:
    held, seen_delete = set(old), False
    for line in plan.change_text(NAMES, BOX, {"t4": old}, {"t4": new}).splitlines():
        verb, _, word, _ = line.split()
        seen_delete |= verb == "del"
        assert not (verb == "add" and seen_delete)
        (held.add if verb == "add" else held.discard)(word)
        assert held <= old | new
    assert held == new


def test_unknown_content_is_replaced_in_one_step() -> None:
    text = plan.change_text(NAMES, BOX, None, {"t4": frozenset({"192.0.2.1"})})
    assert [line.split()[0] for line in text.splitlines()] == (
        ["create", "flush", "add", "swap", "destroy"]
    )


def test_members_that_we_did_not_write_make_a_set_unknown() -> None:
    text = (
        "create a hash:net family inet hashsize 64\nadd a 10.0.0.0/8\nadd a 192.0.2.1\n"
        "create b hash:net,port\nadd b 10.0.0.1,tcp:80\nadd b 10.0.0.2,sctp:80\n"
        "create c hash:net\nadd c 10.0.0.0/8 nomatch\nadd c 10.0.0.1\n"
        "create d hash:net\n"
    )
    contents = plan.Contents(text)
    assert contents.of("a") == frozenset({"10.0.0.0/8", "192.0.2.1"})
    assert (contents.of("b"), contents.of("c")) == (None, None)
    assert (contents.of("d"), contents.has("d")) == (frozenset(), True)
    assert (contents.of("e"), contents.has("e")) == (frozenset(), False)
