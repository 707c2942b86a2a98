"""Installing the guard, once per process and not before it is needed.

Importing this package installs nothing. Nothing is ever uninstalled: an audit hook cannot be.
"""

from __future__ import annotations

import builtins
import os
import sys
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from democrai_osguard.guard.asking import Approvals, Witness

doors: dict[str, Any] = {}
undescribed: list[Any] = []  # references to guards that were made before the guard was there
# Public code that takes part in an answer about approvals.
_ANSWERING = tuple(
    f"democrai_osguard.{name}"
    for name in (
        "access", "approvals.", "audit.", "guard.asking", "guard.installation", "permissions.",
        "policy.", "runtime.approvals_link", "runtime.desk", "targets.",
    )
)  # fmt: skip
_LINK = "democrai_osguard.runtime.approvals_link"
_OPERATORS = ("DEMOCRAI_STATE_DIR", "DEMOCRAI_APPROVALS_STORE")
_once = allocate_lock()


def install() -> None:
    """Put the guard in place, at the first call. Code that enters no guard keeps working as is."""
    if doors:
        return
    with _once:
        if not doors:
            from democrai_osguard.guard.assembly import assemble  # noqa: PLC0415 - importing installs nothing, and stays cheap

            assemble(doors, undescribed)


def protect(path: str | os.PathLike[str]) -> None:
    """Keep a file or a folder of the runtime from every rule. Refused inside a guard."""
    install()
    from democrai_osguard.guard.outcome import as_error  # noqa: PLC0415 - only an installed guard raises these

    answer = doors["protect"](os.path.realpath(path))
    if answer is not None:
        raise as_error(answer) from None


def ready_for_tasks() -> None:
    """Start the launcher of the SDK's children now: it stays in the cgroup that this one is in."""
    install()
    from democrai_osguard.guard.outcome import as_error  # noqa: PLC0415 - only an installed guard raises these

    answer = doors["ready_for_tasks"]()
    if answer is not None:
        raise as_error(answer) from None


def use_approvals(service: Approvals | None, witness: Witness | None = None) -> None:
    """Register who answers about approvals, and who writes refusals and bypasses down.

    None means the rules alone, and no notes. Refused inside a guard.
    """
    from democrai_osguard.guard.asking import Asker  # noqa: PLC0415 - only who has approvals pays for it

    use_asker(None if service is None else Asker(service, doors), witness)


def answer_by_default() -> None:
    """Let the operator's store answer where the application has not said who does.

    The operator names it by DEMOCRAI_STATE_DIR or DEMOCRAI_APPROVALS_STORE. A name is looked up
    here that stands above this package: whoever never needs it does not load it.
    """
    install()
    if not any(map(os.environ.get, _OPERATORS)) or doors["is_chosen"]():
        return
    from importlib import import_module  # noqa: PLC0415 - as above

    import_module(_LINK).use_default_approvals()


def use_asker(asker: Callable[..., bool | str] | None, witness: Witness | None = None) -> None:
    """Register what is asked about each act: it gets plain values, and says True or why not."""
    install()
    from democrai_osguard.guard.asking import notes_for  # noqa: PLC0415 - as above
    from democrai_osguard.guard.outcome import as_error  # noqa: PLC0415 - only an installed guard raises these

    notes = () if witness is None else notes_for(witness)
    answer = doors["use_approvals"](asker, notes, _answering(), vars(builtins))
    if answer is not None:
        raise as_error(answer) from None


def _answering() -> list[ModuleType]:
    """Return the loaded modules that may take part in an answer; packages only gather names."""
    return [
        module
        for name, module in sorted(sys.modules.copy().items())
        if name.startswith(_ANSWERING) and not hasattr(module, "__path__")
    ]
