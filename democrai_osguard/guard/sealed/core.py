"""Which guard holds here: tokens in a context variable, states behind them, owners on the stack.

The variable carries a token without power; the state that it stands for is only in this module.
A context without a token is not free by itself: a frame on the stack that runs guarded work, or
code that was loaded under a guard, brings its state along.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock, get_ident
from _weakref import getweakrefcount
from contextvars import Context, ContextVar, copy_context
from gc import disable as stop_collecting
from gc import enable as start_collecting
from gc import isenabled as collecting
from sys import _getframe, getrefcount
from time import monotonic
from types import CodeType, FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.sealed.frames import back

if TYPE_CHECKING:
    from collections.abc import Callable

State = SimpleNamespace  # fields: see `activation.new_state`

VAR: ContextVar[Any] = ContextVar("democrai_osguard")
MISSING = object()
STATES: dict[LockType, State] = {}
OWNERS: dict[FrameType, LockType] = {}  # frames that run guarded work, while they do
FREE: set[FrameType] = set()  # frames that run work of code without a guard, wherever they stand
BUSY_THREADS: dict[int, int] = {}  # how many of those frames each thread has
LOOPS: list[bool] = []  # filled once an event loop has been handed guarded work
# Code that was loaded under a guard, by identity: its name is only what it says of itself.
MARKED: dict[int, tuple[CodeType, LockType]] = {}
LOADED: list[CodeType] = []  # and what was loaded under one by the name of a library
WATCH: list[bool] = []  # filled while any of the three above has something to look for
EXPECTED: dict[int, bool] = {}  # threads in which `here` is about to look
# Paths that were judged a moment ago, by token, each with the count of changes at which it was:
# to be read, and to be looked at by name. See `opening.keep`.
FRESH: dict[LockType, dict[str, int]] = {}
NAMED: dict[LockType, dict[str, int]] = {}
HERE: list[CodeType] = []  # the code of `here`, from installation on
UNGUARDED: list[CodeType] = []  # and of `unguarded`
HANDLE_RUN: list[CodeType] = []  # asyncio's frame that runs a callback in its own context
ANSWERED: list[bool] = []  # filled while somebody answers about approvals
REMEMBER_SECONDS = 0.4  # and then no answer is older; the service's own memory comes on top
TRUSTED_ROOTS: list[tuple[str, ...]] = [()]

get = VAR.get
_HISTORY: list[Callable[[BaseException, None], None]] = [
    vars(BaseException)[name].__set__ for name in ("__traceback__", "__context__", "__cause__")
]
_ROOM = 16_384  # marks, before those of code that is gone are dropped
_room = [_ROOM]


def _spare_references() -> int:
    """Return how often something counts that is in one place, and looked at in a loop.

    From 3.14 on the call that counts has no reference of its own.
    """
    (count,) = [getrefcount(each) for each in [object()]]
    return count


_SPARE_REFERENCES = _spare_references()


def text_of(value: Any) -> str | None:
    """Return text or bytes as exact text, None for anything else; no method of it is called."""
    if isinstance(value, str):
        return "".join((value,))  # noqa: FLY002 - joining calls no method of a subclass
    if isinstance(value, (bytes, bytearray)):
        return b"".join((value,)).decode("utf-8", "surrogateescape")
    return None


def new_token() -> LockType:
    """Return a token: hashed by identity, impossible to forge, nothing inside."""
    return allocate_lock()


def current() -> State | None:
    """Return the state that holds for the calling code, None where no guard does."""
    token = get(MISSING)
    # The type first, as in `state_of`: this is asked so often that it does without the call.
    if type(token) is LockType:
        state = STATES.get(token, CLOSED)
        if state.bypass:
            return in_bypass(state)
        return timely(state) if ANSWERED else state
    if token is MISSING:
        return on_stack() if WATCH else None
    return CLOSED


def in_bypass(state: State) -> State | None:
    """Return what holds where the runtime's own code acts: it must be there, on the stack.

    An exception that comes out of nowhere, from a signal, can break off a bypass before the code
    that opened it is able to close it. The guard around it holds again then.
    """
    if state.opener is not None and not _is_on_stack(state.opener):
        return timely(state.around)
    return marked_on_stack()


def _is_on_stack(wanted: FrameType) -> bool:
    frame = here()
    while frame is not None and frame is not wanted:
        frame = back(frame)
    return frame is not None


def timely(state: State) -> State:
    """Return a state that remembers no answer of people's for longer than it may."""
    if ANSWERED and monotonic() >= state.until_asked:
        # New ones: another thread may be reading the old.
        state.answers, state.places, state.reached, state.seen = {}, {}, {}, {}
        FRESH.pop(state.token, None)
        NAMED.pop(state.token, None)
        state.until_asked = monotonic() + REMEMBER_SECONDS
    return state


def state_of(token: object) -> State:
    """Return the state of a token; whatever else was put in its place closes everything."""
    # The type first: an object with a __hash__ or __eq__ of its own could pass for a token.
    if type(token) is LockType:
        return STATES.get(token, CLOSED)
    return CLOSED


def here() -> FrameType | None:
    """Return the frame that called the caller, past the hook, which lets pass exactly this look.

    No finalizer runs between the note and the look, because collection is off; nor a signal
    handler, because nothing is called between them. Neither this frame nor the caller's is named:
    one that holds itself stays until the next collection, with all that is beneath it on the stack.
    """
    ident, collects = get_ident(), collecting()
    stop_collecting()
    EXPECTED[ident] = True
    beneath = back(back(_getframe(0)))  # type: ignore[arg-type] # a function called this
    if collects:
        start_collecting()
    return beneath


def is_own_look(frame: FrameType) -> bool:
    """Tell whether a look at this frame is the one that `here` has just noted."""
    return EXPECTED.pop(get_ident(), False) and frame.f_code is HERE[0]


def on_stack() -> State | None:
    """Return the state of the nearest frame that runs guarded work, or was loaded under one."""
    if LOOPS or get_ident() in BUSY_THREADS:
        found = _owner_on_stack()
        if found is not None:
            return found
    return marked_on_stack() if MARKED else None


def _owner_on_stack() -> State | None:
    frame = here()
    while frame is not None and frame not in FREE:
        if frame.f_code is UNGUARDED[0]:
            return None  # our own call, in a context of its own: see `marked_on_stack`
        token = OWNERS.get(frame)
        if token is not None:
            found = state_of(token)
            return None if found.bypass else found
        if HANDLE_RUN and frame.f_code is HANDLE_RUN[0]:
            state = _of_handle(frame)
            # One without a guard may be a forgery, which is called by what it hides.
            if state is not None:
                return state
        frame = back(frame)
    return None


def _of_handle(frame: FrameType) -> State | None:
    """Return the state of the context in which an event loop runs this callback."""
    context = getattr(frame.f_locals.get("self"), "_context", None)
    token = context.get(VAR, MISSING) if type(context) is Context else MISSING
    return None if token is MISSING else state_of(token)


def marked_on_stack() -> State | None:
    """Return the state under which code on the stack was loaded, of the nearest frame that was."""
    frame = here()
    while frame is not None and MARKED:
        code = frame.f_code
        if code is UNGUARDED[0] or frame in FREE:
            return None  # what is beneath asked for it, and does not do it
        found = MARKED.get(id(code))
        if found is not None:
            return timely(state_of(found[1]))
        frame = back(frame)
    return None


def mark(code: CodeType, state: State) -> None:
    """Remember that this code, and what is made of it, belongs to the subject of this state."""
    if (text_of(code.co_filename) or "").startswith(TRUSTED_ROOTS[0]):
        LOADED.append(code)
        return
    if len(MARKED) > _room[0]:
        _forget_marks()
    for each in parts_of(code):
        MARKED.setdefault(id(each), (each, state.token))
    watch()


def parts_of(code: CodeType) -> list[CodeType]:
    """Return code with all the code inside of it."""
    waiting, found = [code], {}
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += [inner for inner in each.co_consts if type(inner) is CodeType]
    return list(found.values())


def _forget_marks() -> None:
    """Forget code that nobody can run any more: it is only here, and nothing leads to it."""
    for key, (code, _) in MARKED.copy().items():
        if getrefcount(code) <= _SPARE_REFERENCES and not getweakrefcount(code):
            MARKED.pop(key, None)
    _room[0] = max(_ROOM, 2 * len(MARKED))


def own(frame: FrameType, token: LockType) -> None:
    """Note that everything above this frame is guarded work."""
    OWNERS[frame] = token
    ident = get_ident()
    BUSY_THREADS[ident] = BUSY_THREADS.get(ident, 0) + 1
    watch()


def disown(frame: FrameType, previous: LockType | None) -> None:
    """Take a frame's note back, or restore the one of the guard around."""
    if previous is None:
        OWNERS.pop(frame, None)
    else:
        OWNERS[frame] = previous
    ident = get_ident()
    count = BUSY_THREADS.get(ident, 0) - 1
    if count > 0:
        BUSY_THREADS[ident] = count
    else:
        BUSY_THREADS.pop(ident, None)
        watch()


def watch() -> None:
    """Say in one place whether a context without a token may still be guarded."""
    WATCH[:] = [True] if MARKED or BUSY_THREADS or LOOPS else []


def shielded(
    function: Callable[..., Any], noted: Callable[[Any], Any] = lambda answer: answer
) -> Callable[..., Any]:
    """Return the function with its exceptions handed out as values, without our frames.

    A refusal goes through `noted` on its way out.
    """

    def call(*args: Any) -> Any:
        try:
            answer = function(*args)
            return noted(answer) if type(answer) is Warning else answer
        except BaseException as error:  # noqa: BLE001 - handed on without our frames
            return without_history(error)

    return call


def without_history(error: BaseException) -> BaseException:
    """Return an exception that leads to no frame of ours, whatever its class says it leads to."""
    for forget in _HISTORY:
        forget(error, None)
    return error


def unguarded(state: State, function: Callable[..., Any], *args: Any) -> Any:
    """Call the runtime's own code as if no guard were active."""
    free = SimpleNamespace(**vars(state))
    free.bypass, free.token, free.opener = True, new_token(), None
    # In a context of its own: whatever breaks this off, the caller's has never been changed.
    context = copy_context()
    context.run(VAR.set, free.token)
    try:
        STATES[free.token] = free
        return context.run(function, *args)
    finally:
        STATES.pop(free.token, None)


def sweep(closed: list[LockType]) -> None:
    """Forget states whose guard was left and whose token nobody carries any more."""
    for token in closed[:]:
        # The table's key, its value's `token`, this list's entry and the copy's.
        own = 3 + (token in FRESH) + (token in NAMED)
        if getrefcount(token) <= _SPARE_REFERENCES + own:
            for table in (STATES, FRESH, NAMED):
                table.pop(token, None)
            try:  # noqa: SIM105 - `suppress` is everybody's class, and would run in here
                closed.remove(token)
            except ValueError:
                pass  # another thread, which enters a guard as well, was faster


CLOSED = SimpleNamespace(
    token=new_token(),
    bypass=False,
    subject="unknown",
    kind="core",
    before=(),
    chain=("core:unknown",),
    roots={},
    dependencies=frozenset(),
    network=None,
    hosts=None,
    http=None,
    flat=(),
    runtime={},
    policy=None,
    seen={},
    until_asked=0.0,
    answers={},
    places={},
    reached={},
    names={},
    imports=frozenset(),
    subprocess=False,
    identity=(None, None, None, None),
    allow_chain=(),
    passes=(),
)
STATES[CLOSED.token] = CLOSED
