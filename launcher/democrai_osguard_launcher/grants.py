"""What a plan opens, path by path: the kernel's answer foretold, to say which rule was missing.

Nothing is decided here. Landlock and the broker decide; this explains them.
"""

from __future__ import annotations

import os

from . import landlock
from .acts import MOVE, READ_NEW, START
from .broker import place_of
from .plan import DECLARED
from .rules import FILESYSTEM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .acts import Act
    from .plan import Plan

_OWN_FOLDER = "/proc/self"
_BY_NAME = {"create": landlock.MAKE_REG | landlock.MAKE_SOCK, "delete": landlock.REMOVE_FILE}
_OPERATIONS = {
    "read": landlock.READ_FILE | landlock.READ_DIR,
    "create": landlock.MAKE_REG,
    "modify": landlock.WRITE_FILE,
    "delete": landlock.REMOVE_FILE,
    "execute": landlock.EXECUTE,
}


class Grants:
    """Rights by real path, resolved before the command can move anything."""

    def __init__(self, plan: Plan, *, has_broker: bool = False) -> None:
        self._rights: dict[str, int] = {}
        loaders = plan.loaders if has_broker or plan.brokered else ()
        for path, rights, why in plan.paths:
            started = rights & landlock.EXECUTE and (path not in loaders or why == DECLARED)
            also = (READ_NEW if rights & landlock.READ_FILE else 0) | (START if started else 0)
            self._add(path, rights | also)
        for rule, _, _ in plan.rules:
            if rule.resource_type != FILESYSTEM:
                continue
            # The broker holds these by name, whether the path exists or not.
            self._add_at(place_of(rule), _BY_NAME.get(rule.operation, 0))
            if rule.operation == "read" and "create" in plan.brokered:
                self._add(rule.target, READ_NEW)

    def own_process_is(self, process: int) -> None:
        """Say whose folder /proc/self was when the rights were given."""
        self._rights[f"/proc/{process}"] = self._rights.pop(_OWN_FOLDER, 0)

    def reads(self, path: str) -> bool:
        """Tell whether something lets the path be read."""
        return bool(self._at(path) & (landlock.READ_FILE | landlock.READ_DIR))

    def missing_for(self, act: Act) -> Iterator[str]:
        """Yield the operations that would have to be allowed on the act's target."""
        if act.operation != MOVE:
            if not self._at(act.folder or act.target) & act.right:
                yield act.operation
            return
        folder, new_folder = os.path.dirname(act.target), os.path.dirname(act.leads_to)
        if folder == new_folder:
            return
        # The kernel refuses a move that would gain the object a right.
        gained = self._at(new_folder) & ~self._at(act.target) & act.right
        yield from (name for name, rights in _OPERATIONS.items() if gained & rights)

    def _add(self, path: str, rights: int) -> None:
        self._add_at(path if path == _OWN_FOLDER else os.path.realpath(path), rights)

    def _add_at(self, real: str, rights: int) -> None:
        self._rights[real] = self._rights.get(real, 0) | rights

    def _at(self, path: str) -> int:
        rights = self._rights.get("/", 0)
        while path != "/":
            rights |= self._rights.get(path, 0)
            path = path.rpartition("/")[0] or "/"
        return rights
