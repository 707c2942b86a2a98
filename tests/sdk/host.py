"""A small host of modules for tests: a service, and modules that are loaded under their guard."""

from __future__ import annotations

import importlib
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from democrai_osguard import runtime
from democrai_osguard.approvals import ApprovalService, Operator, open_service

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from democrai_osguard.guard import process_guard_context

ANN = Operator("ann", super_role=True)


class Host:
    """Runs the code of modules, each in a folder of its own. Made before the fork, used after."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outside = folder / "outside"
        self.outside.mkdir()
        (self.outside / "file").write_text("secret")
        self._service: ApprovalService | None = None
        self._count = 0

    @property
    def service(self) -> ApprovalService:
        if self._service is None:
            self._service = open_service()
        return self._service

    def guard(
        self,
        name: str = "notes",
        access: tuple[dict[str, str], ...] = (),
        **identity: Any,  # noqa: ANN401 - as contexts take it
    ) -> process_guard_context:
        """Return the guard of a module with these declarations."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        who = {"user_id": "7", "organization_id": "3", "session_key": "s-1"} | identity
        manifest = {"access": list(access)}
        return runtime.module_context(name, manifest, folder=place, **who)

    def load(self, code: str, name: str = "notes") -> Callable[..., Any]:
        """Load code as a module of the active guard, and return its function `main`."""
        self._count += 1
        module = f"extension_{self._count}"
        place = self.folder / name
        place.mkdir(exist_ok=True)
        with open(place / f"{module}.py", "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(code))
        sys.path.insert(0, str(place))
        importlib.invalidate_caches()  # the folder's own time may be too coarse to tell
        with self.guard(name):
            main: Callable[..., Any] = importlib.import_module(module).main
        return main


def rule(resource_type: str, operation: str, target: object) -> dict[str, str]:
    return {"resource_type": resource_type, "operation": operation, "target": str(target)}
