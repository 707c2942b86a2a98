"""A firewall layer takes over what an earlier one left: a few programs for all boxes together."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

import pytest
from root.checks import POLICY

from democrai_osguard_helper.commands import Commands
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.firewall_layer import FirewallLayer
from democrai_osguard_helper.firewall_plan import Contents, Names, entries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from democrai_osguard_helper.cgroups import Tree
    from democrai_osguard_helper.layers import Policy

pytestmark = [
    pytest.mark.needs("iptables", "ipset"),
    pytest.mark.usefixtures("network"),
]
BOXES: Final = 12
LOOKS: Final = ["ipset", "iptables-save", "ip6tables-save"]
# What somebody may have done to the first box in between, {} being the name of its sets.
DAMAGE: Final = {
    "an entry is gone": "ipset del {}p4 198.18.0.1,tcp:7001",
    "an entry too many": "ipset add {}p4 203.0.113.9,tcp:1",
    "every address": "ipset add {}t6 8000::/1",
    "an exception": "ipset add {}t4 198.18.0.0/24 nomatch",
    "an empty set": "ipset flush {}p4",
    "a spare that a crash left": "ipset create {}p4n hash:net,port",
    "our chain": "iptables -F OSG-t",
    "the jump": "ip6tables -F OUTPUT",
    "everything": "iptables -F",
}


class Counting(Commands):
    """Runs the programs, and remembers which."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def run(self, *jobs: tuple[tuple[str, ...], str]) -> list[str]:
        self.ran += [words[0] for words, _ in jobs]
        return super().run(*jobs)


@pytest.fixture
def policies(tree: Tree) -> Iterator[list[Policy]]:
    """Return boxes that an earlier layer holds, each with another policy."""
    more = [Endpoint(parse_network(f"203.0.113.{i}"), 80 + i) for i in range(BOXES)]
    wide = [Endpoint(parse_network("2001:db8::/32")), Endpoint(parse_network("0.0.0.0/0"), 9)]
    found: list[Policy] = [(tree.new_box(), (*POLICY, each, *wide)) for each in more]
    first = FirewallLayer(Names("t", tree.name))
    assert first.reason() == ""
    for box, rules in found:
        first.prepare(box)
        first.apply(box, rules)
    yield found
    last = FirewallLayer(Names("t", tree.name))
    last.adopt(found)
    last.drop([box for box, _ in found])
    for box, _ in found:
        box.remove()


def _is_exact(layer: FirewallLayer, policies: list[Policy], prefix: str) -> bool:
    text = subprocess.run(["ipset", "save"], capture_output=True, text=True, check=True).stdout
    contents = Contents(text)
    held = all(
        contents.of(f"{prefix}{box.name}-{kind}") == words
        for box, rules in policies
        for kind, words in entries(rules).items()
    )
    names = {box.name for box, _ in policies}
    return held and layer.intact([box for box, _ in policies]) == names and "n " not in text


def test_what_stands_is_looked_at_and_left(policies: list[Policy], tree: Tree) -> None:
    runner = Counting()
    layer = FirewallLayer(Names("t", tree.name), runner=runner)
    layer.adopt(policies)
    assert runner.ran == LOOKS
    assert _is_exact(layer, policies, "osg-t-")


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_was_changed_is_put_right_for_all_at_once(
    policies: list[Policy], tree: Tree, damage: str
) -> None:
    runner = Counting()
    layer = FirewallLayer(Names("t", tree.name), runner=runner)
    layer.adopt(policies)
    words = DAMAGE[damage].format(f"osg-t-{policies[0][0].name}-")
    subprocess.run(words.split(), check=True)
    assert not _is_exact(layer, policies, "osg-t-"), "the damage does not show"
    runner.ran.clear()
    layer.adopt(policies)
    assert _is_exact(layer, policies, "osg-t-")
    assert len(runner.ran) <= 2 * len(LOOKS) + 4  # to look twice, and to write


def test_a_box_that_is_nobody_s_any_more_is_led_to_no_longer(
    policies: list[Policy], tree: Tree
) -> None:
    layer = FirewallLayer(Names("t", tree.name))
    layer.adopt(policies[1:])
    gone = policies[0][0].name
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    assert f"-g OSG-t-{gone}" not in saved
    assert f"-g OSG-t-{policies[1][0].name}" in saved
    assert layer.collect(frozenset(box.name for box, _ in policies[1:])) == (gone,)
