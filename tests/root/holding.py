"""A box held by the layers that a test asks for, with nothing of the daemon around it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from root.checks import POLICY, Held

from democrai_osguard_helper.bpf_hooks import HOOKS
from democrai_osguard_helper.bpf_layer import BpfLayer
from democrai_osguard_helper.firewall_layer import FirewallLayer
from democrai_osguard_helper.firewall_plan import Names
from democrai_osguard_helper.lineup import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from democrai_osguard_helper.bpf_hooks import Hook
    from democrai_osguard_helper.cgroups import Tree
    from democrai_osguard_helper.firewall_layer import Runner
    from democrai_osguard_helper.layers import Layer


@contextlib.contextmanager
def holding(
    mode: str,
    tree: Tree,
    *,
    hooks: Sequence[Hook] = HOOKS,
    runner: Runner | None = None,
    report: bool = False,
) -> Iterator[Held]:
    """Hold a box for the time of a test; `hooks` and `runner` may leave something out."""
    layers: list[Layer] = []
    if mode in {"firewall", "both"}:
        passes = LOOPBACK if mode == "both" else ()
        names = Names("t", tree.name)
        layers.append(FirewallLayer(names, passes=passes, runner=runner, report=report))
    if mode in {"bpf", "both"}:
        layers.append(BpfLayer(hooks))
    assert [layer.reason() for layer in layers] == [""] * len(layers)
    box = tree.new_box()
    try:
        for layer in layers:
            layer.prepare(box)
            layer.apply(box, POLICY)
        yield Held(mode, tree, box, tuple(layers))
    finally:
        for layer in layers:
            layer.drop([box])
        box.remove()
