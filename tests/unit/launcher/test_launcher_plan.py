"""The plan is pure: rules and facts in, rights and labels out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard_launcher import landlock, limits, plan
from democrai_osguard_launcher.explain import as_document
from democrai_osguard_launcher.facts import stands_for_itself
from democrai_osguard_launcher.network_plan import PortRights
from democrai_osguard_launcher.plan import DIRECTORY, FILE, MISSING, SOCKET, Facts, make_plan
from democrai_osguard_launcher.rules import OPERATIONS, Rule, beneath, within

ABIS = range(11)


def fs(operation: str, target: str = "/srv/a") -> Rule:
    return Rule("filesystem", operation, target)


def net(target: str, operation: str = "connect") -> Rule:
    return Rule("network", operation, target)


def facts(abi: int = 10, seccomp: bool = True, broker: bool | None = None, **kinds: str) -> Facts:
    named = {"/srv/" + name: kind for name, kind in kinds.items()}
    waits = seccomp if broker is None else broker
    return Facts(abi, seccomp, waits, {"/srv/a": DIRECTORY, **named}, {})


def declared(made: plan.Plan) -> dict[str, set[str]]:
    return {
        entry.path: set(landlock.right_names(entry.rights))
        for entry in made.paths
        if entry.why == "declared"
    }


RIGHTS_ON_A_FOLDER = {
    "read": {"read_file", "read_dir", "refer"},
    "create": {"make_reg", "make_dir", "make_sym", "make_fifo", "make_sock", "refer"},
    "modify": {"write_file", "truncate", "resolve_unix"},
    "delete": {"remove_file", "remove_dir", "refer"},
    "execute": {"execute", "read_file"},
}


@pytest.mark.parametrize("operation", RIGHTS_ON_A_FOLDER)
def test_an_operation_becomes_its_rights_and_no_others(operation: str) -> None:
    made = make_plan([fs(operation)], facts())
    assert declared(made) == {"/srv/a": RIGHTS_ON_A_FOLDER[operation]}


@pytest.mark.parametrize(
    ("operation", "rights"),
    [
        ("read", {"read_file"}),
        ("modify", {"write_file", "truncate", "resolve_unix"}),
        ("execute", {"execute", "read_file"}),
    ],
)
def test_a_file_gets_file_rights_only(operation: str, rights: set[str]) -> None:
    made = make_plan([fs(operation, "/srv/f")], facts(f=FILE))
    assert declared(made) == {"/srv/f": rights}


@pytest.mark.parametrize("operation", ["create", "delete"])
def test_landlock_cannot_create_or_delete_one_file(operation: str) -> None:
    made = make_plan([fs(operation, "/srv/f")], facts(f=FILE))
    assert declared(made) == {}
    assert made.rules[0].label == plan.BROKERED


def test_a_missing_path_opens_nothing_and_is_reported() -> None:
    made = make_plan([fs("read", "/srv/m")], facts(m=MISSING))
    assert declared(made) == {}
    assert any("/srv/m" in note for note in made.notes)


@pytest.mark.parametrize("abi", ABIS)
@pytest.mark.parametrize("operation", OPERATIONS["filesystem"])
def test_no_right_is_asked_of_a_kernel_that_does_not_know_it(abi: int, operation: str) -> None:
    made = make_plan([fs(operation)], facts(abi))
    known = landlock.abilities(abi)
    assert all(entry.rights & ~known.filesystem == 0 for entry in made.paths)
    assert made.handled.network & ~known.network == 0


@pytest.mark.parametrize(
    ("abi", "names"),
    [(0, 0), (1, 13), (2, 14), (3, 15), (4, 15), (5, 16), (6, 16), (7, 16), (8, 16), (9, 17),
     (10, 17), (11, 17), (99, 17)],
)  # fmt: skip
def test_each_abi_has_its_rights_and_an_unknown_one_those_of_the_newest(
    abi: int, names: int
) -> None:
    assert len(landlock.right_names(landlock.abilities(abi).filesystem)) == names


# Network rights, scopes and flags of entry by ABI, as linux/landlock.h numbers them.
BEYOND_FILES = {
    1: (0, 0, 0), 2: (0, 0, 0), 3: (0, 0, 0), 4: (0b11, 0, 0), 5: (0b11, 0, 0),
    6: (0b11, 0b11, 0), 7: (0b11, 0b11, 0b11), 8: (0b11, 0b11, 0b11), 9: (0b11, 0b11, 0b11),
    10: (0b1111, 0b11, 0b11), 11: (0b1111, 0b11, 0b11),
}  # fmt: skip


@pytest.mark.parametrize("abi", BEYOND_FILES)
def test_ports_scopes_and_flags_come_with_their_abi(abi: int) -> None:
    able = landlock.abilities(abi)
    assert (able.network, able.scopes, landlock.entry_flags(abi)) == BEYOND_FILES[abi]


@pytest.mark.parametrize(("abi", "flags"), [(6, 0), (7, 0b11), (8, 0b1011), (10, 0b1011)])
def test_all_threads_at_once_is_known_and_not_used(abi: int, flags: int) -> None:
    """LANDLOCK_RESTRICT_SELF_TSYNC: it would give threads with fewer rights those of this one."""
    assert landlock.known_flags(abi) == flags
    assert not landlock.entry_flags(abi) & landlock.ALL_THREADS


def test_what_explain_says_to_machines_keeps_its_shape() -> None:
    rules = [fs("read"), net("192.0.2.1:443")]
    document = as_document(make_plan(rules, facts(abi=7)))
    assert document["format"] == 1
    assert set(document) == {
        "format", "level", "landlock", "seccomp", "broker", "loader", "egress", "rules", "missing",
        "notes", "descriptors", "environment", "limits",
    }  # fmt: skip
    shapes = {key: document[key] for key in ("landlock", "seccomp", "descriptors", "environment")}
    assert {key: set(value) for key, value in shapes.items()} == {  # type: ignore[call-overload]
        "landlock": {"abi", "paths", "tcp_and_udp_ports"},
        "seccomp": {"available", "sockets"},
        "descriptors": {"kept", "closed"},
        "environment": {"passed", "asked_for", "withheld", "set"},
    }
    assert document["egress"] == [{"host": "192.0.2.1", "port": 443}]
    assert document["rules"] == [
        {
            "resource_type": "filesystem", "operation": "read", "target": "/srv/a",
            "label": "exact", "held_by": "Landlock",
        },
        {
            "resource_type": "network", "operation": rules[1].operation,
            "target": "192.0.2.1:443", "label": "brokered",
            "held_by": "the broker, by address and port",
        },
    ]  # fmt: skip


def test_create_is_exact_only_beside_modify() -> None:
    assert make_plan([fs("create")], facts()).rules[0].label == plan.BROKERED
    both = [fs("create"), fs("modify")]
    assert [rule.label for rule in make_plan(both, facts()).rules] == [plan.EXACT, plan.EXACT]


def test_without_landlock_a_rule_is_the_guards_alone() -> None:
    made = make_plan([fs("read")], facts(abi=0))
    assert made.rules[0].label == plan.GUARD_ONLY
    assert made.level == plan.PARTIAL


def test_without_landlock_and_seccomp_nothing_is_enforced() -> None:
    assert make_plan([], facts(abi=0, seccomp=False)).level == plan.NONE


@pytest.mark.parametrize("abi", range(1, 11))
def test_rules_for_files_are_held_in_full_from_the_first_abi(abi: int) -> None:
    assert make_plan([fs("read"), fs("modify")], facts(abi)).level == plan.FULL


def test_no_network_rule_means_no_network_socket() -> None:
    assert make_plan([fs("read")], facts(abi=7)).sockets == ()
    assert make_plan([fs("read")], facts(abi=9)).sockets == ("unix",)


@pytest.mark.parametrize("target", ["192.0.2.1:443", "https://192.0.2.1/", "[2001:db8::1]:443"])
def test_without_a_broker_ports_are_held_and_addresses_are_not(target: str) -> None:
    made = make_plan([net(target)], facts(abi=7, broker=False))
    assert made.ports == (PortRights(443, landlock.CONNECT_TCP),)
    assert made.sockets == ("tcp", "netlink route")
    assert made.rules[0].label == plan.GUARD_ONLY
    assert made.level == plan.PARTIAL


def test_a_name_brings_the_resolver() -> None:
    made = make_plan([net("example.com:443")], facts(abi=10, broker=False))
    assert made.ports == (
        PortRights(53, landlock.CONNECT_TCP),
        PortRights(443, landlock.CONNECT_TCP),
        PortRights(53, landlock.CONNECT_SEND_UDP),
        PortRights(0, landlock.BIND_UDP),
    )
    assert "udp" in made.sockets


def test_a_rule_for_every_port_leaves_ports_open_and_says_so() -> None:
    made = make_plan([net("192.0.2.0/24"), net("192.0.2.1:443")], facts(abi=7, broker=False))
    assert made.ports == ()
    assert not made.handled.network & landlock.CONNECT_TCP
    assert "nothing holds address or port" in made.missing[0]


def test_before_abi_4_nothing_holds_a_network_rule() -> None:
    made = make_plan([net("192.0.2.1:443")], facts(abi=3, broker=False))
    assert made.ports == ()
    assert "nothing holds address or port" in made.rules[0].held_by


@pytest.mark.parametrize(("abi", "level"), [(8, plan.PARTIAL), (9, plan.FULL)])
def test_a_declared_unix_socket_is_held_from_abi_9(abi: int, level: str) -> None:
    made = make_plan([fs("modify", "/srv/s")], facts(abi, broker=False, s=SOCKET))
    assert "unix" in made.sockets
    assert made.level == level


def test_before_abi_9_the_broker_judges_which_socket_is_connected_to() -> None:
    made = make_plan([fs("modify", "/srv/s")], facts(abi=8, s=SOCKET))
    assert (made.sockets, made.level) == (("unix",), plan.FULL)
    assert plan.SOCKET_PATHS in made.brokered
    assert made.rules[0].label == plan.BROKERED
    newer = make_plan([fs("modify", "/srv/s")], facts(abi=9, s=SOCKET))
    assert plan.SOCKET_PATHS not in newer.brokered


@pytest.mark.parametrize("abi", [3, 7, 10])
@pytest.mark.parametrize(
    ("rule", "label"),
    [
        (net("192.0.2.1:443"), plan.BROKERED),
        (net("192.0.2.0/24"), plan.BROKERED),
        (net("example.com:443"), plan.BROKERED),
        (net("*.example.com:443"), plan.BROKERED),
        (net("https://example.com/v1"), plan.GUARD_ONLY),
        (net("example.com:443", "send"), plan.GUARD_ONLY),
    ],
)
def test_without_the_helper_the_broker_holds_addresses(abi: int, rule: Rule, label: str) -> None:
    made = make_plan([rule], facts(abi))
    assert (made.level, made.rules[0].label) == (plan.FULL, label)
    assert plan.CONNECT in made.brokered
    assert set(made.sockets) >= {"tcp", "udp", "netlink route"}
    # The command itself dials nobody: Landlock keeps every port closed underneath.
    assert not any(port.rights & landlock.CONNECT_TCP for port in made.ports)
    able = landlock.abilities(abi).network
    assert made.handled.network == able


def test_questions_are_looked_at_only_for_names_below_a_suffix() -> None:
    assert plan.NAMES not in make_plan([net("example.com:443")], facts()).brokered
    assert plan.NAMES in make_plan([net("*.example.com:443")], facts()).brokered


RULES = st.lists(
    st.builds(
        fs,
        st.sampled_from(OPERATIONS["filesystem"]),
        st.sampled_from(["/srv/a", "/srv/f", "/srv/m", "/srv/s"]),
    ),
    max_size=6,
)


@given(rules=RULES, more=RULES, abi=st.sampled_from(ABIS))
def test_a_new_rule_never_removes_access(rules: list[Rule], more: list[Rule], abi: int) -> None:
    known = facts(abi, f=FILE, m=MISSING, s=SOCKET)
    before, after = (declared(make_plan(given, known)) for given in (rules, rules + more))
    assert all(rights <= after.get(path, set()) for path, rights in before.items())


BROKERED = [
    ([("read", "/srv/a")], ()),
    ([("create", "/srv/a")], ("create",)),
    ([("create", "/srv/a"), ("modify", "/srv/a")], ("metadata",)),
    ([("create", "/srv/m")], ("create",)),
    ([("create", "/srv/m"), ("modify", "/srv/m")], ("create", "metadata")),
    ([("delete", "/srv/a")], ("delete folder",)),
    ([("delete", "/srv/f")], ("delete",)),
    ([("delete", "/srv/f"), ("delete", "/srv/a")], ("delete",)),
]


@pytest.mark.parametrize(("rules", "kinds"), BROKERED)
def test_only_what_landlock_cannot_judge_is_brokered(
    rules: list[tuple[str, str]], kinds: tuple[str, ...]
) -> None:
    made = make_plan([fs(*rule) for rule in rules], facts(f=FILE, m=MISSING))
    assert made.brokered == kinds


def beside_the_helper(abi: int, broker: bool = True) -> Facts:
    """Return the facts of a host whose helper listens at /srv/a/s."""
    known = facts(abi, broker=broker, t=SOCKET)
    kinds = {**known.kinds, "/srv/a/s": SOCKET}
    reaching = frozenset({"/srv/a", "/srv/a/s"})
    return Facts(*known[:3], kinds, {}, to_helper=reaching)


@pytest.mark.parametrize("abi", [8, 9])
def test_the_helpers_socket_is_opened_by_no_rule(abi: int) -> None:
    made = make_plan([fs("modify", "/srv/a/s")], beside_the_helper(abi))
    assert "resolve_unix" not in declared(made)["/srv/a/s"]
    assert plan.SOCKET_PATHS not in made.brokered
    assert made.rules[0].held_by == plan.NOT_TO_HELPER
    assert ("unix" in made.sockets) == (abi >= 9)


def test_the_broker_opens_the_other_sockets_of_the_helpers_folder() -> None:
    rules = [fs("modify"), fs("modify", "/srv/t")]
    made = make_plan(rules, beside_the_helper(9))
    assert "resolve_unix" not in declared(made)["/srv/a"]
    assert "resolve_unix" in declared(made)["/srv/t"]
    assert plan.SOCKET_PATHS in made.brokered
    without = make_plan(rules, beside_the_helper(9, broker=False))
    assert plan.SOCKET_PATHS not in without.brokered
    assert "resolve_unix" not in declared(without)["/srv/a"]
    assert without.rules[0].held_by.endswith(plan.NOT_BESIDE_HELPER)
    assert plan.NOT_BESIDE_HELPER not in without.rules[1].held_by


def test_without_notifications_it_stays_closed_and_says_so() -> None:
    known = facts()
    without = Facts(known.abi, known.seccomp, False, known.kinds, {})
    made = make_plan([fs("create")], without)
    assert made.brokered == ()
    assert made.rules[0].label == plan.GUARD_ONLY
    assert "stays closed" in made.rules[0].held_by


def test_a_system_dependency_opens_its_program() -> None:
    rule = Rule("system_dependency", "execute", "git")
    known = Facts(7, True, True, {}, {"git": ("/usr/bin/git", "/lib64/ld.so")})
    made = make_plan([rule], known)
    assert declared(made) == {
        "/usr/bin/git": {"execute", "read_file"}, "/lib64/ld.so": {"execute", "read_file"},
    }  # fmt: skip
    assert made.rules[0].label == plan.EXACT
    absent = make_plan([rule], Facts(7, True, True, {}, {"git": ()}))
    assert absent.rules[0].label == plan.GUARD_ONLY


def test_a_plan_is_a_value() -> None:
    rules = [fs("read"), net("192.0.2.1:443")]
    one, two = make_plan(rules, facts()), make_plan(rules, facts())
    assert one == two
    assert one != make_plan(rules, facts(abi=3))
    with pytest.raises(AttributeError):
        one.abi = 3  # type: ignore[misc]


PATH = st.lists(st.sampled_from("ab"), max_size=4).map(lambda parts: "/" + "/".join(parts))


@given(path=PATH, roots=st.sets(PATH))
def test_within_is_beneath_for_many(path: str, roots: set[str]) -> None:
    assert within(path, roots) == any(beneath(path, root) for root in roots)


def test_only_root_itself_is_told_that_its_processes_are_not_counted() -> None:
    assert stands_for_itself("         0          0 4294967295\n")
    assert not stands_for_itself("         0       1000          1\n")
    assert limits.notes([("nproc", 1)], root=True)
    assert not limits.notes([("nproc", 1)], root=False)
    assert not limits.notes([("files", 1)], root=True)
