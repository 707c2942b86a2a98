from __future__ import annotations

from democrai_osguard import Rule, Subject
from democrai_osguard.access import Operation, ResourceType
from democrai_osguard.policy.chain import Chain

MODULE, TASK, ENGINE = map(Subject.parse, ("module:m", "task:m", "engine:e"))
TOOL, AGENT, PIPELINE, SERVER = map(Subject.parse, ("tool:t", "agent:a", "pipeline:p", "mcp:s"))


def read(target: str) -> Rule:
    return Rule(ResourceType.FILESYSTEM, Operation.READ, target)


def reads(chain: Chain, target: str) -> bool:
    return chain.find(ResourceType.FILESYSTEM, Operation.READ, target) is not None


def test_subjects_with_manifests_merge() -> None:
    chain = Chain.of(MODULE, [read("/m")]).enter(ENGINE, [read("/e")])
    assert reads(chain, "/m/x")
    assert reads(chain, "/e/x")
    assert not reads(chain, "/x")


def test_a_task_merges_with_its_module() -> None:
    chain = Chain.of(MODULE, [read("/m")]).enter(TASK, [read("/t")])
    assert reads(chain, "/m")
    assert reads(chain, "/t")


def test_an_asset_narrows_to_what_both_allow() -> None:
    for asset in (TOOL, AGENT, PIPELINE):
        chain = Chain.of(MODULE, [read("/a"), read("/b")]).enter(asset, [read("/b"), read("/c")])
        assert [reads(chain, path) for path in ("/a", "/b", "/c")] == [False, True, False]


def test_an_asset_that_declares_nothing_changes_nothing() -> None:
    chain = Chain.of(MODULE, [read("/a")]).enter(TOOL)
    assert reads(chain, "/a")
    assert not reads(chain, "/b")


def test_an_asset_that_declares_an_empty_list_closes_everything() -> None:
    chain = Chain.of(MODULE, [read("/a")]).enter(TOOL, [])
    assert not reads(chain, "/a")
    assert chain.flat() == ()


def test_a_second_asset_narrows_the_first() -> None:
    chain = Chain.of(MODULE, [read("/")]).enter(AGENT, [read("/a")]).enter(TOOL, [read("/a/b")])
    assert reads(chain, "/a/b/c")
    assert not reads(chain, "/a/c")
    assert chain.flat() == (read("/a/b"),)


def test_an_asset_that_is_wider_than_what_is_outside_gains_nothing() -> None:
    chain = Chain.of(MODULE, [read("/a/b")]).enter(TOOL, [read("/")])
    assert reads(chain, "/a/b")
    assert not reads(chain, "/a")
    assert chain.flat() == (read("/a/b"),)


def test_an_mcp_server_starts_fresh() -> None:
    chain = Chain.of(MODULE, [read("/m")]).enter(SERVER, [read("/s")])
    assert not reads(chain, "/m")
    assert reads(chain, "/s")


def test_an_mcp_server_without_rules_has_no_access() -> None:
    chain = Chain.of(MODULE, [read("/")]).enter(SERVER)
    assert not reads(chain, "/m")
    assert chain.flat() == ()


def test_an_empty_chain_allows_nothing() -> None:
    assert not reads(Chain(), "/")
    assert Chain().flat() == ()


def test_a_chain_prints_its_subjects_from_the_outermost() -> None:
    chain = Chain.of(MODULE).enter(TOOL)
    assert str(chain) == "module:m > tool:t"
    assert chain.subjects == (MODULE, TOOL)
    assert chain.actor == TOOL


def test_a_flat_list_of_network_rules_meets_in_the_middle() -> None:
    def receive(target: str) -> Rule:
        return Rule(ResourceType.NETWORK, Operation.RECEIVE, target)

    outer = [receive("*.example.com"), receive("192.0.2.0/24")]
    inner = [receive("a.example.com:443"), receive("192.0.2.7"), receive("example.com")]
    chain = Chain.of(MODULE, outer).enter(TOOL, inner)
    assert set(chain.flat()) == {receive("a.example.com:443"), receive("192.0.2.7")}
    crossed = Chain.of(MODULE, [receive("a.example.com:443")]).enter(
        TOOL, [receive("https://*.example.com/v1")]
    )
    assert crossed.flat() == (receive("https://a.example.com/v1"),)


def test_ranges_of_both_versions_of_ip_meet_in_this_machine() -> None:
    v4 = Rule(ResourceType.NETWORK, Operation.CONNECT, "0.0.0.0/0")
    v6 = Rule(ResourceType.NETWORK, Operation.CONNECT, "::/0")
    chain = Chain.of(MODULE, [v4]).enter(TOOL, [v6])
    assert chain.find(ResourceType.NETWORK, Operation.CONNECT, "localhost:80") is not None
    assert chain.flat() == (Rule(ResourceType.NETWORK, Operation.CONNECT, "localhost"),)


def test_an_engine_inside_a_narrowed_asset_adds_its_own_rules() -> None:
    chain = Chain.of(MODULE, [read("/a")]).enter(TOOL, [read("/a/b")]).enter(ENGINE, [read("/e")])
    assert [reads(chain, path) for path in ("/a/b", "/e", "/a/c")] == [True, True, False]
