"""Every way out that we know of, on each layer alone and on both, with its control."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from root.checks import CHECKS, Held
from root.holding import holding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from democrai_osguard_helper.cgroups import Tree


@pytest.fixture(
    params=[
        pytest.param("bpf", marks=pytest.mark.needs("bpf")),
        pytest.param("firewall", marks=pytest.mark.needs("iptables", "ipset")),
        pytest.param("both", marks=pytest.mark.needs("bpf", "iptables", "ipset")),
    ]
)
def held(request: pytest.FixtureRequest, tree: Tree) -> Iterator[Held]:
    """Return a box that is open for the allowed addresses, held in one of the three ways."""
    request.getfixturevalue("network")
    with holding(request.param, tree) as found:
        yield found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_box_lets_out_what_is_allowed_and_nothing_else(
    held: Held, check: Callable[[Held], list[str]]
) -> None:
    assert check(held) == []
