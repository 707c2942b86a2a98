"""Holding the application itself to network rules, as `sandbox.os.…` says.

Call it at the start, before the first socket and outside of every guard.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from democrai_osguard.access import Subject
from democrai_osguard.enforcement.egress import Confinement, NotConfined, confine_this_process
from democrai_osguard.guard.installation import ready_for_tasks
from democrai_osguard.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from democrai_osguard.access import Rule
    from democrai_osguard.approvals.service import ApprovalService
    from democrai_osguard.settings import OsSettings

_CORE = Subject.parse("core:core")
_log = logging.getLogger("democrai_osguard.runtime")


def confine_application(
    rules: Iterable[Rule],
    service: ApprovalService | None = None,
    *,
    subject: Subject = _CORE,
    session_key: str | None = None,
    settings: OsSettings | None = None,
) -> Confinement | None:
    """Let the helper hold this process, and all that it starts, to these network rules.

    Name everything that the application reaches, its modules among it. With a service, people are
    asked about what is refused, and their answers count at once. Where `sandbox.os.enabled` is
    false, or the helper does not hold it, which is logged, returns None if `sandbox.os.require` is
    `none`, and raises NotConfined if more is required. `full` also means that no network socket
    may be open yet: nothing would hold it.
    """
    chosen = load_settings() if settings is None else settings
    if not chosen.enabled:
        _check_not_required(chosen)
        return None
    # Children get sandboxes of their own, so their launcher must stay outside of this one.
    ready_for_tasks()
    try:
        return confine_this_process(
            rules, subject, session_key,
            approvals=None if service is None else getattr(service.store, "url", None),
            settings=chosen,
        )  # fmt: skip
    except NotConfined as error:
        if chosen.require != "none":
            raise
        _log.warning("this process is not held to its network rules: %s", error)
        return None


def _check_not_required(chosen: OsSettings) -> None:
    """Raise NotConfined where the settings that switch everything off require some of it."""
    if chosen.require != "none":
        why = f"sandbox.os.enabled is false, and sandbox.os.require is {chosen.require}"
        raise NotConfined(f"{NotConfined.code}: {why}")
