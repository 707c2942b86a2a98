"""A change that fails half way leaves open what was open, and nothing of what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from root import attempts
from root.checks import POLICY
from root.lab import ALLOWED, FORBIDDEN, verdict

from democrai_osguard_helper import bpf_layer
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.layers import LayerFailed

if TYPE_CHECKING:
    from democrai_osguard_helper.cgroups import Tree


@pytest.mark.usefixtures("network")
@pytest.mark.needs("bpf")
def test_keys_that_do_not_fit_are_taken_back(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpf_layer, "MAX_KEYS", 16)
    layer, box = bpf_layer.BpfLayer(), tree.new_box()
    layer.prepare(box)
    layer.apply(box, POLICY)
    # Keys are written in order: the forbidden one is in, when the rest does not fit.
    wanted = [Endpoint(parse_network(f"203.0.113.{n}")) for n in range(16)]
    strange = Endpoint(parse_network(FORBIDDEN[4]))
    try:
        with pytest.raises(LayerFailed):
            layer.apply(box, [strange, *wanted])
        assert verdict(box, lambda: attempts.tcp(FORBIDDEN[4])) == "EPERM"
        assert verdict(box, lambda: attempts.tcp(ALLOWED[4])) == "allowed"
        layer.apply(box, POLICY[:1])
        assert verdict(box, lambda: attempts.tcp(FORBIDDEN[4])) == "EPERM"
        layer.apply(box, [strange])  # the control: there is room, and it opens
        assert verdict(box, lambda: attempts.tcp(FORBIDDEN[4])) == "allowed"
    finally:
        layer.drop([box])
        box.remove()
