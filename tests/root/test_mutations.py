"""Leave one hook or one rule out, and some check must complain: nothing here is decoration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from root import attempts, checks
from root.holding import holding
from root.lab import FORBIDDEN, verdict

from democrai_osguard_helper import firewall_plan as plan
from democrai_osguard_helper.bpf_hooks import HOOKS
from democrai_osguard_helper.cgroups import Box
from democrai_osguard_helper.commands import Commands

if TYPE_CHECKING:
    from democrai_osguard_helper.bpf_hooks import Hook
    from democrai_osguard_helper.cgroups import Tree

HOOK_NOTICED_BY: Final = {
    "create": checks.every_way_out,
    "connect4": checks.refused_at_once,
    "connect6": checks.refused_at_once,
    "sendmsg4": checks.refused_without_a_route,
    "sendmsg6": checks.refused_without_a_route,
    "egress": checks.cut_when_taken_away,
    "listeners": checks.loopback_is_an_address,
}
# Each rule of the firewall, by words that no other rule has, and the check that misses it.
RULES: Final = {
    "tcp to every port": (("-t{v} dst -j RETURN",), checks.only_that_port),
    "udp to every port": (("-u{v} dst -j RETURN",), checks.only_that_port),
    "a port": (("-p{v} dst,dst -j RETURN",), checks.every_way_out),
    "reset": (("-A OSG-t-", "--reject-with tcp-reset"), checks.cut_when_taken_away),
    "refusal": (("-A OSG-t-", "--reject-with icmp{x}"), checks.only_that_port),
    "entry": ((" -g OSG-t-",), checks.only_that_port),
    "end of our chain": (("-A OSG-t -j REJECT",), checks.a_box_that_nobody_prepared),
    "the one jump": ((" -j OSG-t",), checks.refused_at_once),
}


NOTE: Final = ("-j SET --add-set",)  # only where rules report what they refuse


class Forgetful(Commands):
    """Runs everything but the lines that contain all of some words, for one family."""

    def __init__(self, version: int, words: tuple[str, ...]) -> None:
        self._program = {4: "iptables-restore", 6: "ip6tables-restore"}[version]
        self._words = tuple(word.format(v=version, x="" if version == 4 else "6") for word in words)
        self.left_out = 0

    def run(self, *jobs: tuple[tuple[str, ...], str]) -> list[str]:
        return super().run(*((words, self._without(words[0], text)) for words, text in jobs))

    def _without(self, program: str, text: str) -> str:
        if program != self._program:
            return text
        lines = text.splitlines(keepends=True)
        kept = [line for line in lines if not self.matches(line)]
        self.left_out += len(lines) - len(kept)
        return "".join(kept)

    def matches(self, line: str) -> bool:
        return not line.startswith(":") and all(word in line for word in self._words)


@pytest.mark.usefixtures("network")
@pytest.mark.needs("bpf")
@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_a_missing_hook_is_noticed(hook: Hook, tree: Tree) -> None:
    with holding("bpf", tree, hooks=[other for other in HOOKS if other is not hook]) as held:
        assert HOOK_NOTICED_BY[hook.name](held)


@pytest.mark.usefixtures("network")
@pytest.mark.needs("iptables", "ipset")
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("rule", RULES)
def test_a_missing_rule_is_noticed(rule: str, version: int, tree: Tree) -> None:
    words, check = RULES[rule]
    runner = Forgetful(version, words)
    with holding("firewall", tree, runner=runner) as held:
        assert runner.left_out
        assert check(held)


@pytest.mark.usefixtures("network")
@pytest.mark.needs("iptables", "ipset")
@pytest.mark.parametrize("version", [4, 6])
def test_the_rule_that_notes_refusals_is_noticed_too(version: int, tree: Tree) -> None:
    for runner in (None, Forgetful(version, NOTE)):
        with holding("firewall", tree, runner=runner, report=True) as held:
            verdict(held.box, lambda: attempts.tcp(FORBIDDEN[version]))
            (layer,) = held.layers
            noted = {
                each.address for each in dict(layer.attempts([held.box])).get(held.box.name, ())
            }
        assert noted == ({FORBIDDEN[version]} if runner is None else set())


@pytest.mark.parametrize("version", [4, 6])
def test_every_rule_of_the_firewall_can_be_left_out(version: int) -> None:
    """A rule that is added to the plan needs a check that misses it."""
    box = Box("0123456789ab", "/x", "x/0123456789ab")
    text = plan.whole_text(plan.Names("t", "x"), [box], version, plan.Saved(""), report=True)
    mutants = {name: Forgetful(version, words) for name, (words, _) in RULES.items()}
    mutants["note"] = Forgetful(version, NOTE)
    for line in text.splitlines():
        if line.startswith("-"):
            assert any(mutant.matches(line) for mutant in mutants.values()), line


def test_every_hook_can_be_left_out() -> None:
    assert {hook.name for hook in HOOKS} == set(HOOK_NOTICED_BY)
