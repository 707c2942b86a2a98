"""Handing work over: threads, and items of pools, each under the guard of the code that made it.

The public runners below the work are known by identity, and learn what to run from here: guarded
code that changes their surroundings changes nothing about which guard holds.
"""

from __future__ import annotations

from _weakref import ref
from contextvars import Context
from types import FunctionType
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.sealed.answers import refusal
from democrai_osguard.guard.sealed.core import (
    FREE,
    MISSING,
    OWNERS,
    VAR,
    current,
    disown,
    get,
    here,
    own,
    unguarded,
)
from democrai_osguard.guard.sealed.opening import bare

if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable
    from types import CodeType, FrameType

ORIGINALS: dict[str, Any] = {}
RUNNER: list[Any] = []  # the public function that runs work, and the doors that it calls
RUNNER_CODE: list[CodeType] = []
HANDLER_CODE: list[CodeType] = []  # of the public function that keeps frames from handlers
STARTING: list[object] = []  # what is being started through the wrapper, for the hook
_before: dict[FrameType, Any] = {}
_tracers: dict[str, Any] = {}  # what the application gave to functions of `threading`, by name
# Work that was handed over without a guard, for threads that may have one: tickets by identity,
# whether each is good more than once. What it is for, it says to whoever has the key.
_tickets: dict[int, tuple[ref[Any], bool]] = {}
_KEY = object()
DOOR: list[Any] = []  # what makes a door


def start(name: str, function: Any, args: Any, options: dict[str, Any]) -> object:
    """Start a thread under the guard of the code that starts it."""
    if type(name) is not str or type(options) is not dict:
        raise TypeError("a thread is started by name")
    state = current()
    if state is None:
        return _start(name, function, args, options)
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


def note_tracer(kind: Any, function: Any) -> None:
    """Note what the application lets threads be traced by; what guarded code sets is not noted."""
    if current() is None and type(kind) is str:
        _tracers[kind] = function


def is_tracer(function: Any) -> bool:
    """Tell whether the application lets threads be traced by this function."""
    return any(function is each for each in tuple(_tracers.values()))


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
    if frame is None or frame.f_code is not RUNNER_CODE[0] or frame in OWNERS or frame in FREE:
        return None  # only the runner itself, and once
    work = _redeemed(token)
    if work is not None:
        FREE.add(frame)
        function, args, kwargs = work
        # A context of its own: what is handed on from there must not have the thread's guard.
        return Context().run, (function, *args), kwargs
    _before[frame] = VAR.set(token)
    own(frame, token)
    return None


def end() -> None:
    """Take `begin` back, for the frame that began."""
    frame = here()
    if frame is None:
        return
    FREE.discard(frame)
    before = _before.pop(frame, None)
    if before is None:
        return
    disown(frame, None)
    try:
        VAR.reset(before)
    except ValueError:  # the work left another context behind
        VAR.set(None)


def ticket(function: Any, args: Any, kwargs: Any, again: Any) -> object:
    """Return a ticket for work without a guard, None where there is a guard.

    Whoever has it can have the work done that it is for, by any thread, once or `again`.
    """
    return _ticket(again, _hand_over, function, args, kwargs)


def callback_ticket(function: Any, future: Any) -> object:
    """Return a ticket for what is to be called with a future that is done; see `ticket`.

    The future has the ticket, so that one must not keep it.
    """
    return _ticket(False, _hand_over_callback, function, ref(future))  # noqa: FBT003 - once


def _ticket(again: Any, hand_over: Callable[..., Any], *work: Any) -> object:
    if current() is not None or get(MISSING) is not MISSING:
        return None
    made = DOOR[0](ORIGINALS["partial"](hand_over, *work))
    gone = DOOR[0](ORIGINALS["partial"](_forget_ticket, id(made)))
    _tickets[id(made)] = ref(made, gone), again is True
    return made


def _redeemed(token: Any) -> Any:
    """Return the work that a ticket is for, None where it is no ticket, or is used up."""
    known = _tickets.get(id(token))
    made: Any = None if known is None else known[0]()
    if known is None or made is None or made is not token:
        return None
    if not known[1]:
        del _tickets[id(made)]
    return made(_KEY)


def _hand_over(function: Any, args: Any, kwargs: Any, key: Any) -> object:
    """Say what a ticket is for, to us alone."""
    return (function, args, kwargs) if key is _KEY else None


def _hand_over_callback(function: Any, future: ref[Any], key: Any) -> object:
    return (function, (future(),), {}) if key is _KEY else None


def _forget_ticket(key: int, made: ref[Any]) -> None:
    """Drop what belongs to a ticket that is gone; called by the interpreter, or by anybody."""
    known = _tickets.get(key)
    if known is not None and known[0] is made and made() is None:
        del _tickets[key]
