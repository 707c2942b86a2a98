"""Strategies for rules, requests and chains, narrow enough that rules and requests often meet."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from democrai_osguard import Rule, Subject, covers, normalize_target
from democrai_osguard.access import Operation, ResourceType
from democrai_osguard.policy.chain import Chain


class Asked(NamedTuple):
    """What a request asks for, whoever asks."""

    resource_type: ResourceType
    operation: Operation
    target: str


class Level(NamedTuple):
    """One subject of a generated chain; `rules` is None where it declares nothing."""

    subject: Subject
    rules: tuple[Rule, ...] | None


_HOSTS = (
    *("example.com", "a.example.com", "*.example.com", "*.a.example.com"),
    *("localhost", "192.0.2.7", "192.0.2.7"),
)
_RANGES = ("192.0.2.0/24", "192.0.2.0/29", "0.0.0.0/0", "::/0", "126.0.0.0/7")

_endpoints = st.builds(
    lambda host, port: normalize_target("network", f"{host}{port}"),
    st.sampled_from(_HOSTS),
    st.sampled_from(("", "", ":80", ":443")),
)
_urls = st.builds(
    lambda scheme, host, port, path: normalize_target("network", f"{scheme}://{host}{port}{path}"),
    st.sampled_from(("https", "http")),
    st.sampled_from(_HOSTS),
    st.sampled_from(("", "", ":80")),
    st.sampled_from(("", "/v1", "/v1/", "/v1/x", "/v1/x/y", "/v10", "/v1?a=b", "/v1/x?a=b", "?c")),
)
network_targets = st.one_of(_endpoints, _urls, st.sampled_from(_RANGES))
paths = st.one_of(
    st.just("/"),
    st.lists(st.sampled_from(("a", "b", "ab")), min_size=1, max_size=3).map(
        lambda names: "/".join(("/none", *names))
    ),
)
dependencies = st.sampled_from(("git", "Git", "g++"))

asked = st.one_of(
    st.builds(
        Asked,
        st.just(ResourceType.NETWORK),
        st.sampled_from((Operation.CONNECT, Operation.RECEIVE)),
        network_targets,
    ),
    st.builds(
        Asked,
        st.just(ResourceType.FILESYSTEM),
        st.sampled_from((Operation.READ, Operation.MODIFY)),
        paths,
    ),
    st.builds(
        Asked,
        st.just(ResourceType.SYSTEM_DEPENDENCY),
        st.just(Operation.EXECUTE),
        dependencies,
    ),
)
rules = asked.map(lambda what: Rule(*what))
rule_lists = st.lists(rules, max_size=6).map(tuple)
# Many requests for one generated policy: making the policy is what costs.
requests = st.lists(asked, min_size=5, max_size=15)

_merging = st.sampled_from(("module:m", "task:m", "engine:e", "extractor:x")).map(Subject.parse)
_narrowing = st.sampled_from(("tool:t", "agent:a", "pipeline:p")).map(Subject.parse)
merging_levels = st.builds(Level, _merging, st.one_of(rule_lists, st.none()))
narrowing_levels = st.builds(Level, _narrowing, st.one_of(rule_lists, rule_lists, st.none()))
fresh_levels = st.builds(Level, st.just(Subject.parse("mcp:s")), rule_lists)
levels = st.lists(
    st.one_of(merging_levels, narrowing_levels, merging_levels, narrowing_levels, fresh_levels),
    min_size=1,
    max_size=5,
)


def chain_of(path: list[Level]) -> Chain:
    """Return the chain of these levels, outermost first."""
    chain = Chain()
    for level in path:
        chain = chain.enter(level.subject, level.rules)
    return chain


def any_covers(own: tuple[Rule, ...], what: Asked) -> bool:
    """Tell whether one of the rules covers what is asked, by looking at each of them."""
    return any(
        (rule.resource_type, rule.operation) == (what.resource_type, what.operation)
        and covers(what.resource_type, rule.target, what.target)
        for rule in own
    )


def chain_allows(path: list[Level], what: Asked) -> bool:
    """Tell what the contract says about a chain, level by level."""
    allowed: bool | None = None  # None: nobody has spoken yet
    for level in path:
        own = any_covers(level.rules or (), what)
        if level.subject.type in {"tool", "agent", "pipeline"}:
            if level.rules is not None:
                allowed = own and allowed is not False
        elif level.subject.type == "mcp":
            allowed = own
        else:
            allowed = own or allowed is True
    return allowed is True
