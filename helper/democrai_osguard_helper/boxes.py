"""Makes boxes that are closed and tried, and keeps a few ready: what is slow happens beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .layers import LayerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .cgroups import Box, Tree
    from .layers import Layer
    from .probes import Probe

READY: Final = 2  # boxes that wait for a peer


class Boxes:
    """A maker of boxes with a small stock."""

    def __init__(
        self,
        tree: Tree,
        layers: Sequence[Layer],
        probe: Probe,
        checkpoint: Callable[[str], None],
        ready: int = READY,
    ) -> None:
        self._tree = tree
        self.layers = layers
        self._probe = probe
        self._checkpoint = checkpoint
        self.target = ready
        self._stock: dict[Box, int] = {}  # with the number of the cgroup that was tried

    def stock(self) -> tuple[Box, ...]:
        """Return the boxes that wait; one that somebody removed, or made again, is forgotten."""
        gone = [box for box, identity in self._stock.items() if not box.is_still(identity)]
        for box in gone:
            del self._stock[box]
        if gone:
            self._drop(gone)
        return tuple(self._stock)

    def is_short(self) -> bool:
        """Tell whether another box should be made."""
        return len(self._stock) < self.target

    def refill(self) -> None:
        """Make one more box; raise LayerFailed when it does not hold."""
        box = self._make()
        self._stock[box] = box.identity()

    def take(self) -> Box:
        """Return a closed box; raise LayerFailed when none can be made."""
        return self._stock.popitem()[0] if self.stock() else self._make()

    def discard(self, boxes: Sequence[Box]) -> None:
        """Remove boxes that nobody is in: first what names them, then the cgroups."""
        for layer in self.layers:
            layer.drop(boxes)
        for box in boxes:
            box.remove()

    def empty(self) -> None:
        """Remove the stock."""
        self.discard(self.stock())
        self._stock = {}

    def _make(self) -> Box:
        try:
            box = self._tree.new_box()
        except OSError as error:
            raise LayerFailed(f"cgroup: {error.strerror}") from error
        self._checkpoint("box made")
        try:
            for layer in self.layers:
                self._close(box, layer)
                for _ in layer.attempts([box]):
                    continue  # our own: nobody needs to hear of them
        except (LayerFailed, OSError) as error:
            self._undo(box)
            raise LayerFailed(str(error)) from error
        return box

    def _close(self, box: Box, layer: Layer) -> None:
        layer.prepare(box)
        self._checkpoint(f"{layer.name} prepared")
        wrong = self._probe.refused(box, layer.refusal)
        if wrong:
            raise LayerFailed(f"{layer.name}: {wrong}")
        self._checkpoint(f"{layer.name} tried")

    def _undo(self, box: Box) -> None:
        self._drop([box])
        box.remove()

    def _drop(self, boxes: Sequence[Box]) -> None:
        for layer in self.layers:
            try:
                layer.drop(boxes)
            except LayerFailed:
                continue  # it was never prepared there, or the next start collects it
