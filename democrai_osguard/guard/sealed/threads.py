"""Handing work over: threads, and items of pools, each under the guard of the code that made it.

The public runners below the work are known by identity, and learn what to run from here: guarded
code that changes their surroundings changes nothing about which guard holds.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock
from types import FunctionType
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.sealed.answers import refusal
from democrai_osguard.guard.sealed.core import (
    MISSING,
    OWNERS,
    STATES,
    VAR,
    State,
    current,
    disown,
    get,
    here,
    new_token,
    own,
    unguarded,
)
from democrai_osguard.guard.sealed.opening import bare

if TYPE_CHECKING:
    from types import CodeType, FrameType

ORIGINALS: dict[str, Any] = {}
RUNNER: list[Any] = []  # the public function that runs work, and the doors that it calls
RUNNER_CODE: list[CodeType] = []
HANDLER_CODE: list[CodeType] = []  # of the public function that keeps frames from handlers
STARTING: list[object] = []  # what is being started through the wrapper, for the hook
_before: dict[FrameType, Any] = {}
# Work that was handed over without a guard, for threads that may have one: run once, as it is.
_tickets: dict[LockType, tuple[Any, Any, Any]] = {}
_guarded_starts = [0]


def start(name: str, function: Any, args: Any, options: dict[str, Any]) -> object:
    """Start a thread under the guard of the code that starts it."""
    if type(name) is not str or type(options) is not dict:
        raise TypeError("a thread is started by name")
    state = current()
    if state is None:
        return _start(name, function, args, options)
    _guarded_starts[0] += 1
    work = _work(state.token, function, args, options.pop("kwargs", None) or {})
    STARTING.append(work)
    try:
        return _start(name, work, (), options)
    except BaseException as error:  # noqa: BLE001 - handed on without our frames
        return bare(error, state)
    finally:
        STARTING.remove(work)


def set_signal(number: int, handler: Any) -> object:
    """Do what `signal.signal` does, for a handler that gets no frame where a guard is active."""
    state = current()
    if state is not None and callable(handler) and not unguarded(state, _is_ours, handler):
        return refusal(state, "sandbox_guard_denied", None, "a signal handler past its wrapper")
    return ORIGINALS["signal"](number, handler)


def _is_ours(handler: Any) -> bool:
    return type(handler) is FunctionType and handler.__code__ is HANDLER_CODE[0]


def _work(token: LockType, function: Any, args: Any, kwargs: Any) -> Any:
    """Return a callable that runs the work in the public runner, without a frame of ours."""
    runner, begin, end = RUNNER
    return ORIGINALS["partial"](runner, begin, end, token, function, args, kwargs)


def _start(name: str, function: Any, args: Any, options: dict[str, Any]) -> object:
    original = ORIGINALS[name]
    if name == "start_joinable_thread":
        return original(function, **options)
    kwargs = options.get("kwargs")
    return original(function, args) if kwargs is None else original(function, args, kwargs)


def begin(token: Any) -> object:
    """Let what the calling runner runs be under the guard of a token; return a ticket's work."""
    frame = here()
    work = None
    if frame is None or frame.f_code is not RUNNER_CODE[0] or frame in OWNERS:
        return None  # only the runner itself, and once
    if type(token) is LockType and token in _tickets:
        work = _tickets.pop(token)
        token = _free()
    _before[frame] = VAR.set(token)
    own(frame, token)
    return work


def _free() -> LockType:
    """Return the token of work that never had a guard."""
    token = new_token()
    STATES[token] = State(token=token, bypass=True, opener=None)
    return token


def end() -> None:
    """Take `begin` back, for the frame that began."""
    frame = here()
    before = None if frame is None else _before.pop(frame, None)
    if frame is None or before is None:
        return
    token = OWNERS.get(frame)
    disown(frame, None)
    try:
        VAR.reset(before)
    except ValueError:  # the work left another context behind
        VAR.set(None)
    state = STATES.get(token) if type(token) is LockType else None
    if state is not None and state.bypass:
        STATES.pop(state.token, None)


def ticket(function: Any, args: Any, kwargs: Any) -> LockType | None:
    """Return a ticket for work without a guard, None where no thread can have one."""
    if not _guarded_starts[0] or current() is not None or get(MISSING) is not MISSING:
        return None
    made = allocate_lock()
    _tickets[made] = function, args, kwargs
    return made
