"""Settling decisions from code that cannot await: in a thread of its own, which no guard is in.

The thread is started before any guarded work, and each question runs there in an empty context.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING

from democrai_osguard.policy.decision import Allow, Decision, Deny, RequiresApproval

if TYPE_CHECKING:
    from democrai_osguard.permissions.modes import Permissions

APPLICANT: ContextVar[object] = ContextVar("APPLICANT", default=None)
_GRACE = 1.0  # seconds beyond the patience of the questions themselves


class Settler:
    """Asks `Permissions` from any thread, and waits for the answer."""

    def __init__(self, permissions: Permissions) -> None:
        self.permissions = permissions
        self._loop = _running_loop()
        self._process = os.getpid()

    def settle(self, decision: Decision, applicant: object = None) -> Allow | Deny:
        """Return Allow or Deny; this blocks until somebody has answered, or has not in time.

        Whoever is asked finds in `APPLICANT` on whose behalf, and through whom.
        """
        if os.getpid() != self._process:
            # A fork has the loop and not its thread: nobody would ever answer.
            raise RuntimeError("questions are asked in the process that was set up for them")
        question = self.permissions.settle(decision)
        context = Context()
        context.run(APPLICANT.set, applicant)
        asked = context.run(asyncio.run_coroutine_threadsafe, question, self._loop)
        try:
            # A classifier and then a person, each with all the patience there is.
            return asked.result(2 * self.permissions.patience + _GRACE)
        except TimeoutError:  # somebody blocks the loop itself
            asked.cancel()
            if isinstance(decision, RequiresApproval):
                return Deny(decision.request, "nobody answered in time, which is a no")
            raise


def _running_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(
        target=loop.run_forever, name="democrai-osguard questions", daemon=True
    ).start()
    return loop
