"""The techniques and the operations of `tests/kernel`, under each layer alone and all together."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from escapes.consequences import of_kernel_technique
from escapes.outcome import Row
from escapes.peers import NOBODY
from escapes.single_layers import KERNEL_LAYERS, freely, under, under_guard
from kernel.folder_acts import ACTS, ALSO_OPENED_BY, METADATA, OPERATIONS, lay_out
from kernel.techniques import TECHNIQUES
from kernel.world import new_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kernel.conftest import Grant
    from kernel.folder_acts import Act
    from kernel.techniques import World

KERNEL, OPERATION = "kernel", "operation"


def kernel_rows(peers: Mapping[str, Mapping[str, str]], *, guarded: bool) -> Iterator[Row]:
    """Yield each technique with what stops it here, and what it does in the peers."""
    for name, (attempt, anybody) in TECHNIQUES.items():
        uid = NOBODY if anybody else 0
        yield Row(
            KERNEL,
            name,
            "user" if anybody else "root",
            of_kernel_technique(name),
            free=_in_world(uid, _freely(attempt, uid)),
            layers=(_guard(attempt) if guarded else {}) | _layers(attempt, uid),
            peers={peer: found[name] for peer, found in peers.items()},
        )


def _freely(attempt: Callable[[World], object], uid: int) -> Callable[[World], str]:
    return lambda w: freely(lambda: attempt(w), uid)


def _guard(attempt: Callable[[World], object]) -> dict[str, str]:
    # The guard does not ask who runs it; as root it can load what it needs wherever that is.
    return {"guard": _in_world(0, lambda w: under_guard(lambda: attempt(w), str(w.inside)))}


def _layers(attempt: Callable[[World], object], uid: int) -> dict[str, str]:
    def confined(layer: str) -> str:
        return _in_world(uid, lambda w: under(layer, lambda: attempt(w), _grants(w), uid))

    return {layer: confined(layer) for layer in KERNEL_LAYERS}


def _in_world(uid: int, look: Callable[[World], str]) -> str:
    with new_world(uid) as world:
        return look(world)


def _grants(w: World) -> list[Grant]:
    inside: list[Grant] = [(op, w.inside) for op in ("read", "create", "modify", "delete")]
    return [*inside, ("read", w.inside.parent / "readable")]


def _operations() -> Iterator[tuple[str, Act, set[str]]]:
    """Yield each act with all operations but one that it needs."""
    for name, (act, needed) in ACTS.items():
        for lacking in sorted(needed):
            others = set(OPERATIONS) - {lacking} - ALSO_OPENED_BY.get(lacking, set())
            yield f"{name}, without {lacking}", act, others
    for name, act in METADATA.items():
        yield f"{name}, without modify", act, set(OPERATIONS) - {"modify"}


def operation_names() -> list[str]:
    """Return the names of the rows that `operation_rows` yields."""
    return [name for name, _, _ in _operations()]


def operation_rows() -> Iterator[Row]:
    """Yield each act in a folder where every operation but one that it needs was granted."""
    for name, act, granted in _operations():
        yield _operation_row(name, act, granted)


def _operation_row(name: str, act: Act, granted: set[str]) -> Row:
    def confined(layer: str) -> str:
        with tempfile.TemporaryDirectory(prefix="acts-") as base:
            at = lay_out(Path(base) / "folder")
            # Elsewhere everything is granted, so that the broker is there to be asked.
            other = lay_out(Path(base) / "other")
            grants: list[Grant] = [(operation, at) for operation in sorted(granted)]
            grants += [(operation, other) for operation in OPERATIONS]
            return under(layer, lambda: act(at), grants)

    with tempfile.TemporaryDirectory(prefix="acts-") as base:
        at = lay_out(Path(base) / "folder")
        free = freely(lambda: act(at))
    layers = {layer: confined(layer) for layer in KERNEL_LAYERS}
    return Row(OPERATION, name, "user", "does more than was granted", free, layers)
