"""Installing the guard, once per process and not before it is needed.

Importing this package installs nothing. Nothing is ever uninstalled: an audit hook cannot be.
"""

from __future__ import annotations

import os
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from democrai_osguard.guard.asking import Approvals

doors: dict[str, Any] = {}
_once = allocate_lock()


def install() -> None:
    """Put the guard in place, at the first call. Code that enters no guard keeps working as is."""
    if doors:
        return
    with _once:
        if not doors:
            from democrai_osguard.guard.assembly import assemble  # noqa: PLC0415 - importing installs nothing, and stays cheap

            assemble(doors)


def protect(path: str | os.PathLike[str]) -> None:
    """Keep a file or a folder of the runtime from every rule. Refused inside a guard."""
    install()
    from democrai_osguard.guard.outcome import as_error  # noqa: PLC0415 - only an installed guard raises these

    answer = doors["protect"](os.path.realpath(path))
    if answer is not None:
        raise as_error(answer) from None


def use_approvals(service: Approvals | None) -> None:
    """Register who answers about approvals; None means the rules alone. Refused inside a guard."""
    install()
    from democrai_osguard.guard.asking import Asker  # noqa: PLC0415 - only who has approvals pays for it
    from democrai_osguard.guard.outcome import as_error  # noqa: PLC0415 - only an installed guard raises these

    answer = doors["use_approvals"](None if service is None else Asker(service, doors))
    if answer is not None:
        raise as_error(answer) from None
