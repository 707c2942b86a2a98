"""Going on after an approval: each action once, under the guard of whoever asked."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from typing import TYPE_CHECKING

from democrai_osguard.approvals.resuming import run_resumes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from democrai_osguard.approvals.records import PendingRequest
    from democrai_osguard.approvals.resuming import ResumeCall
    from democrai_osguard.approvals.service import ApprovalService

    Action = Callable[[ResumeCall], object]
    GuardOf = Callable[[ResumeCall], AbstractContextManager[object]]

_WAIT_SECONDS = 5.0  # how long one wait for a change lasts; stopping is noticed after it
_log = logging.getLogger("democrai_osguard.runtime")


class Resumer:
    """Runs the actions that approvals have made ready, at start and after each change.

    Guarded code chooses the action and its context, so an action never runs outside of a guard:
    `guard_of` returns the one of the call's own subject, with the identity in `call.origin`.
    An asynchronous action runs in an event loop of its own.
    """

    def __init__(
        self, service: ApprovalService, actions: Mapping[str, Action], guard_of: GuardOf
    ) -> None:
        self._service = service
        self._actions = {name: _guarded(action, guard_of) for name, action in actions.items()}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="democrai-osguard resumes")
        self._thread.daemon = True

    def run(self) -> list[PendingRequest]:
        """Run what is ready now; return the requests as they ended."""
        return run_resumes(self._service, self._actions)

    def start(self) -> None:
        """Go on by itself from now on. Call it outside of every guard."""
        self._thread.start()

    def stop(self) -> None:
        """End the waiting; an action that runs is finished first."""
        self._stopped.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join()

    def _follow(self) -> None:
        revision = -1
        while not self._stopped.is_set():
            try:
                seen = self._service.store.wait(revision, _WAIT_SECONDS)
                if seen != revision:
                    revision = seen
                    self.run()
            except Exception:  # noqa: BLE001 - nobody else would ever go on
                # Such as a store that cannot answer: what is ready stays ready.
                _log.exception("approvals could not be followed")
                self._stopped.wait(_WAIT_SECONDS)


def _guarded(action: Action, guard_of: GuardOf) -> Action:
    def run(call: ResumeCall) -> None:
        with guard_of(call):
            result = action(call)
            if inspect.iscoroutine(result):
                asyncio.run(result)

    return run
