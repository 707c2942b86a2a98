"""Work that is handed to somebody else to run: threads, pools, signals, exits."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from contextvars import copy_context
from operator import index
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.outcome import as_error
from democrai_osguard.guard.patches.rows import Replacement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OF_INTERPRETERS = "InterpreterPoolExecutor"  # from Python 3.14 on
_HAND_OVER = ("apply_async", "_map_async", "imap", "imap_unordered")  # what all others call


def runner(begin: Any, end: Any, token: Any, function: Any, args: Any, kwargs: Any) -> Any:  # noqa: PLR0913, PLR0917 - a thread is handed its arguments by position
    """Run work under the guard of the code that handed it out, with nothing but its arguments."""
    work = begin(token)
    if work is not None:
        function, args, kwargs = work
    try:
        return function(*args, **kwargs)
    finally:
        end()


def bound(doors: Mapping[str, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function tied to the active guard; itself where none is active."""
    token = doors["carried"]()
    if token is None:
        return function
    begin, end = doors["begin"], doors["end"]

    def run(*args: Any, **kwargs: Any) -> Any:
        return runner(begin, end, token, function, args, kwargs)

    return run


def thread_start(doors: Mapping[str, Any], name: str) -> Callable[..., Any]:
    """Return what stands for a function of `_thread` that starts a thread."""

    def start(function: Any, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        if kwargs is not None:
            options["kwargs"] = kwargs
        answer = doors["start_thread"](name, function, args, options)
        if isinstance(answer, BaseException):
            raise as_error(answer) from None
        return answer

    return start


def _on_ticket(doors: Mapping[str, Any], ticket: Any) -> Callable[..., Any]:
    """Return what does the work of a ticket, whatever it is called with."""
    begin, end = doors["begin"], doors["end"]

    def run(*_args: Any) -> Any:
        return runner(begin, end, ticket, None, (), {})

    return run


def _submit(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            if doors["carried"]() is not None:
                return original(
                    self, bound(doors, _in_context(copy_context(), fn)), *args, **kwargs
                )
            # A worker may have been started by guarded work; ours must not run under its guard.
            once = False
            ticket = doors["ticket"](fn, args, kwargs, once) if _is_of_threads(self) else None
            if ticket is None:
                return original(self, fn, *args, **kwargs)
            return original(self, _on_ticket(doors, ticket))

        return submit

    return make


def _is_of_threads(pool: Any) -> bool:
    """Tell whether a pool hands its work to threads as it is; one of interpreters copies it."""
    return _OF_INTERPRETERS not in {each.__name__ for each in type(pool).__mro__}


def _initialized(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a maker of pools whose initializer runs under the guard of whoever makes them."""

    def make(original: Any) -> Any:
        def __init__(  # noqa: N807 - it replaces one
            self: Any,
            max_workers: Any = None,
            thread_name_prefix: Any = "",
            initializer: Any = None,
            initargs: Any = (),
            **more: Any,
        ) -> None:
            if callable(initializer) and _is_of_threads(self):
                again = True
                ticket = doors["ticket"](initializer, initargs, {}, again)
                if ticket is None:
                    initializer = bound(doors, initializer)
                else:
                    initializer = _on_ticket(doors, ticket)
            original(self, max_workers, thread_name_prefix, initializer, initargs, **more)

        return __init__

    return make


def _called_back(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a maker of an `add_done_callback` that ties the callback to whoever adds it."""

    def make(original: Any) -> Any:
        def add_done_callback(self: Any, fn: Any) -> Any:
            ticket = doors["callback_ticket"](fn, self)
            if ticket is None:
                return original(self, bound(doors, fn))
            return original(self, _on_ticket(doors, ticket))

        return add_done_callback

    return make


def _handed(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a maker of methods that hand calls to a pool: of threads, tied to the active guard.

    No guard reaches the processes of an older pool, so handing them a call is starting one.
    """

    def make(original: Any) -> Any:
        def hand_over(self: Any, func: Any, *rest: Any, **named: Any) -> Any:
            if doors["carried"]() is None:
                return original(self, func, *rest, **named)
            if "ThreadPool" not in {each.__name__ for each in type(self).__mro__}:
                answer = doors["starting"]("multiprocessing.Pool")
                if answer is not None:
                    raise as_error(answer) from None
                return original(self, func, *rest, **named)
            others = (_tied(doors, each) for each in rest)
            options = {name: _tied(doors, each) for name, each in named.items()}
            return original(self, bound(doors, func), *others, **options)

        return hand_over

    return make


def _tied(doors: Mapping[str, Any], value: Any) -> Any:
    """Return a callback, or items that a thread of the pool draws, tied to the active guard."""
    if not isinstance(value, Iterable):
        return bound(doors, value) if callable(value) else value
    return value if isinstance(value, Sized) else iter(bound(doors, iter(value).__next__), object())


def _in_context(context: Any, function: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return context.run(function, *args, **kwargs)

    return run


def _first_bound(doors: Mapping[str, Any], position: int) -> Callable[[Any], Any]:
    """Return a maker of functions that tie one argument, a callback, to the active guard."""

    def make(original: Any) -> Any:
        def register(*args: Any, **kwargs: Any) -> Any:
            if len(args) > position and callable(args[position]):
                values = list(args)
                values[position] = bound(doors, values[position])
                args = tuple(values)
            return original(*args, **kwargs)

        return register

    return make


def _all_bound(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a maker of functions that tie every argument by keyword to the active guard."""

    def make(original: Any) -> Any:
        def register(**callbacks: Any) -> Any:
            return original(
                **{
                    when: bound(doors, callback) if callable(callback) else callback
                    for when, callback in callbacks.items()
                }
            )

        return register

    return make


def unframed(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Return a signal handler that keeps the interrupted frame to itself: it may be one of ours."""

    def handle(number: int, _frame: object) -> Any:
        return inner(number, None)

    return handle


def _handler(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    def make(_original: Any) -> Any:
        def signal(signalnum: Any, handler: Any, /) -> Any:
            if callable(handler) and doors["carried"]() is not None:
                handler = unframed(bound(doors, handler))
            answer = doors["set_signal"](index(signalnum) + 0, handler)
            if isinstance(answer, BaseException):
                raise as_error(answer) from None
            return answer

        return signal

    return make


def thread_patches(doors: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """Return the rows of this area."""
    return (
        Replacement("concurrent.futures.thread:ThreadPoolExecutor", "submit", _submit(doors)),
        Replacement(
            "concurrent.futures.thread:ThreadPoolExecutor", "__init__", _initialized(doors)
        ),
        Replacement("concurrent.futures._base:Future", "add_done_callback", _called_back(doors)),
        *(Replacement("multiprocessing.pool:Pool", name, _handed(doors)) for name in _HAND_OVER),
        Replacement("atexit", "register", _first_bound(doors, 0), everywhere=True),
        Replacement("posix", "register_at_fork", _all_bound(doors), everywhere=True),
        Replacement("weakref:finalize", "__init__", _first_bound(doors, 2)),
        Replacement("_signal", "signal", _handler(doors), everywhere=True),
    )
