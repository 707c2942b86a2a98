"""Event loops: in which context a callback runs, so that it is under the guard of whoever made it.

Contexts carry the guard along by themselves. What is looked for here is the rest: a context that
has no guard in it, given where a guard is active. It may be a way out; then the work runs in a copy
that has the guard. It may also be the application's own, where guarded code only completes what a
task of the application waits for; then it is left alone. Nobody's context is ever changed.
"""

from __future__ import annotations

from _weakref import ref
from contextvars import Context, copy_context
from gc import get_referents
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.sealed import core
from democrai_osguard.guard.sealed.core import MISSING, VAR, State, current, get, unguarded
from democrai_osguard.guard.sealed.namespaces import IMMUTABLE, space_of

if TYPE_CHECKING:
    from collections.abc import Callable

DOOR: list[Any] = []  # what makes a door, and ties arguments to a function
PARTIAL: list[Any] = []
ADDING: list[Any] = []  # what makes the stand-in of `add_done_callback`
NATIVE: list[Any] = []  # what stands for methods of a loop that is made in C, by type and name
_STEP: list[type] = []  # the type of a task's step, as the interpreter makes it
_ASK: dict[str, Any] = {}  # how a task is asked, whatever its class says
# Tasks by identity: what each was made for, its own context, and the one that it runs in instead
# where guarded code made it without the guard.
_TASKS: dict[int, SimpleNamespace] = {}
# What code without a guard added to futures: the future, the callback and its context.
_ADDED: dict[tuple[int, int, int], tuple[ref[Any], ref[Any], ref[Any]]] = {}
_STEP_NAME = "TaskStepMethWrapper"
_NATIVE_MODULE = "uvloop.loop"
_WAKE_UP = "task_wakeup"  # a function of the interpreter's own: nobody else can make one
_abstract: Any = type.__dict__["__abstractmethods__"]


def scheduling(callback: Any, args: Any, context: Any) -> Any:
    """Return the context for a callback that is scheduled here; None leaves it to the loop."""
    state = current()
    if state is not None:
        core.LOOPS[:] = [True]
        core.watch()
    kind = type(callback)
    if _STEP and kind is _STEP[0]:
        return _for_step(state, callback.__self__, context)
    if kind is BuiltinFunctionType and callback.__name__ == _WAKE_UP:
        return _for_wake_up(state, callback.__self__, args, context)
    if state is None or _was_added(callback, args, context):
        return context
    return _carrying(state, context)


def handling(callback: Any, args: Any, context: Any) -> tuple[Any, Context | None]:
    """Return the context for a callback, likewise, and one to be around it where a guard is in it.

    A context is entered once at a time, so that this is another.
    """
    context = scheduling(callback, args, context)
    inside = copy_context() if context is None else context
    if type(inside) is not Context or inside.get(VAR, MISSING) is MISSING:
        return context, None
    return context, inside if context is None else inside.copy()


def adding(future: Any, callback: Any, context: Any) -> Any:
    """Return the context for what is to be called once a future is done; None leaves it to it."""
    state = current()
    if state is not None:
        return _carrying(state, context)
    if context is None:
        context = copy_context()
    if type(context) is Context:
        _note_added(future, callback, context)
    return context


def running(context: Any) -> Any:
    """Return the context that a runner keeps, without the guard of an earlier run.

    It takes the context of its first run, and with it the guard that was active then.
    """
    if type(context) is not Context:
        return context
    state, kept = current(), context.get(VAR, MISSING)
    token = MISSING if state is None else state.token
    if kept is MISSING or kept is token:
        return context
    fresh = Context()
    for variable, value in context.items():
        if variable is not VAR:
            fresh.run(variable.set, value)
    if state is not None:
        fresh.run(VAR.set, token)
    return fresh


def _carrying(state: State, context: Any) -> Any:
    """Return a context with a guard: the given one where it has one, else a copy."""
    if context is None and get(MISSING) is not MISSING:
        return None  # a copy of the current one is made in a moment
    if type(context) is not Context:  # it would be asked to run the work
        context = copy_context()
    if context.get(VAR, MISSING) is MISSING:
        context = context.copy()
        context.run(VAR.set, state.token)
    return context


def _for_step(state: State | None, task: Any, context: Any) -> Any:
    """Return the context of a task's step. The first one is scheduled by whoever made the task."""
    known = _known(task)
    if known is None:
        known = _note_task(task, context)
        carrying = context if state is None else _carrying(state, context)
        known.instead = None if carrying is context else carrying
    if known.instead is not None:
        return known.instead
    return context if state is None or known.own() is context else _carrying(state, context)


def _for_wake_up(state: State | None, task: Any, args: Any, context: Any) -> Any:
    """Return the context in which a task goes on: its own, whoever completes what it awaits."""
    known = _known(task)
    if known is not None and known.instead is not None:
        return known.instead
    if state is None or (_is_awaited(task, args) and _is_own(task, known, context)):
        return context
    return _carrying(state, context)


def _is_awaited(task: Any, args: Any) -> bool:
    return type(args) is tuple and len(args) == 1 and _ASK["_fut_waiter"](task) is args[0]


def _is_own(task: Any, known: SimpleNamespace | None, context: Any) -> bool:
    """Tell whether a context is the task's; one that is not known was there before any guard."""
    if "get_context" in _ASK:  # from Python 3.12 on
        return _ASK["get_context"](task) is context
    return known is None or known.own() is context


def _known(task: Any) -> SimpleNamespace | None:
    """Return what is known of a task, unless it was made anew since, for something else."""
    known = _TASKS.get(id(task))
    if known is None or known.task() is not task or known.coroutine() is not _ASK["get_coro"](task):
        return None
    return known


def _note_task(task: Any, context: Any) -> SimpleNamespace:
    key, coroutine = id(task), _ASK["get_coro"](task)
    gone = DOOR[0](PARTIAL[0](_forget_task, key))
    _TASKS[key] = known = SimpleNamespace(
        task=ref(task, gone), coroutine=_reference(coroutine), own=_reference(context), instead=None
    )
    return known


def _reference(value: Any) -> Callable[[], Any]:
    """Return what leads to a value, and keeps it only where it takes no weak reference."""
    try:
        return ref(value)
    except TypeError:
        return lambda: value


def _forget_task(key: int, task: ref[Any]) -> None:
    """Drop what belongs to a task that is gone; called by the interpreter, or by anybody."""
    known = _TASKS.get(key)
    if known is not None and known.task is task and task() is None:
        del _TASKS[key]


def _note_added(future: Any, callback: Any, context: Context) -> None:
    key = id(future), id(callback), id(context)
    gone = DOOR[0](PARTIAL[0](_forget_added, key))
    try:  # noqa: SIM105 - `suppress` is everybody's class, and would run in here
        _ADDED[key] = ref(future), ref(callback), ref(context, gone)
    except TypeError:
        pass  # one that takes no reference runs under the guard of whoever completes the future


def _was_added(callback: Any, args: Any, context: Any) -> bool:
    """Tell whether code without a guard wanted exactly this to be called, in this context."""
    if type(args) is not tuple or len(args) != 1:
        return False
    given = args[0], callback, context
    known = _ADDED.get((id(args[0]), id(callback), id(context)))
    return known is not None and all(each() is one for each, one in zip(known, given, strict=True))


def _forget_added(key: tuple[int, int, int], context: ref[Any]) -> None:
    """Drop what belongs to a context that is gone; called by the interpreter, or by anybody."""
    known = _ADDED.get(key)
    if known is not None and known[2] is context and context() is None:
        del _ADDED[key]


def know_tasks(task: Any, step: Any) -> None:
    """Note the interpreter's own types of a task and of its step, and how a task is asked."""
    if _STEP or not (_is_made_in_c(task, "Task") and _is_made_in_c(step, _STEP_NAME)):
        return
    space = space_of(task)
    _ASK["_fut_waiter"] = space["_fut_waiter"].__get__
    _ASK.update((name, space[name]) for name in ("get_coro", "get_context") if name in space)
    _STEP.append(step)


def know_futures(future: Any) -> None:
    """Let a type of the interpreter's own futures say who adds a callback.

    Its types take no attributes; the dictionary behind their namespace does.
    """
    if any(_is_made_in_c(future, name) for name in ("Future", "Task")):
        _replace(future, "add_done_callback", MethodDescriptorType, ADDING[0])


def know_native(kind: Any) -> None:
    """Let a type of a loop that is made in C do what would be unseen where it is seen."""
    for name in NATIVE[0]:
        if _is_made_in_c(kind, name) and kind.__module__ == _NATIVE_MODULE:
            for method, make in NATIVE[0][name].items():
                _replace(kind, method, None, make)


def _replace(kind: Any, name: str, of: type | None, make: Callable[[Any], Any]) -> None:
    """Replace a method of a type that takes no attributes, in the dictionary behind its names."""
    state = current()
    space = space_of(kind)
    (behind,) = get_referents(space) if state is None else unguarded(state, get_referents, space)
    original = behind.get(name)
    if type(original) in {FunctionType, NoneType} or of not in {None, type(original)}:
        return  # a function of Python's is one of ours
    behind[name] = make(original)
    # Setting this, to nothing, makes the interpreter forget what it has looked up.
    _abstract.__set__(kind, ())
    _abstract.__delete__(kind)


def _is_made_in_c(kind: Any, name: str) -> bool:
    """Tell whether this is the type of that name that was made in C: it could not be renamed."""
    return type(kind) is type and bool(kind.__flags__ & IMMUTABLE) and kind.__name__ == name
