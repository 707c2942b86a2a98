"""Installing the guard, once per process and not before it is needed.

Importing this package installs nothing. Nothing is ever uninstalled: an audit hook cannot be.
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from democrai_osguard.guard.asking import Approvals, Witness

doors: dict[str, Any] = {}
_once = allocate_lock()


def install() -> None:
    """Put the guard in place, at the first call. Code that enters no guard keeps working as is."""
    if doors:
        return
    with _once:
        if not doors:
            from democrai_osguard.guard.assembly import assemble  # noqa: PLC0415 - loaded only where it is needed

            assemble(doors)


def protect(path: str | os.PathLike[str]) -> None:
    """Keep a file or a folder of the runtime from every rule. Refused inside a guard."""
    install()
    from democrai_osguard.guard.outcome import as_error  # noqa: PLC0415 - loaded only where it is needed

    answer = doors["protect"](os.path.realpath(path))
    if answer is not None:
        raise as_error(answer) from None


def use_approvals(service: Approvals | None, witness: Witness | None = None) -> None:
    """Register who answers about approvals, and who writes refusals and bypasses down.

    None means the rules alone, and no notes. Refused inside a guard.
    """
    install()
    from democrai_osguard.guard.asking import Asker, notes_for  # noqa: PLC0415 - loaded only where it is needed
    from democrai_osguard.guard.outcome import as_error  # noqa: PLC0415 - loaded only where it is needed

    asker = None if service is None else Asker(service, doors)
    answer = doors["use_approvals"](asker, () if witness is None else notes_for(witness))
    if answer is not None:
        raise as_error(answer) from None
