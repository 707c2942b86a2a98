"""Entering and leaving guards, and running handed-out work under the guard that made it.

Only the frame that opened a guard closes it. Code that was loaded under a guard opens none,
since rules merge: it would widen its own.
"""

from __future__ import annotations

from _thread import LockType, get_ident
from types import CodeType, FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.sealed import core
from democrai_osguard.guard.sealed.answers import (
    ASK,
    CHOSEN,
    NOTE,
    PROTECTED,
    refusal,
    without_denied,
)
from democrai_osguard.guard.sealed.core import STATES, VAR, State, current, text_of, unguarded
from democrai_osguard.guard.sealed.imports import NEVER, SENSITIVE, opened
from democrai_osguard.guard.sealed.integrity import repair, restore_answers, watch_answers
from democrai_osguard.guard.sealed.policies import policy_of, with_runtime

if TYPE_CHECKING:
    from contextvars import Token

SKIP: list[CodeType] = []  # frames that open and close on behalf of whoever called them
GENERATOR_ENTER: list[CodeType] = []
RUNTIME_FILES: list[tuple[str, ...]] = [()]
VARIABLES: list[Any] = []  # the public function that dumps a child's environment
_OPEN: dict[LockType, SimpleNamespace] = {}
_closed: list[LockType] = []
_FILE_OPERATIONS = ("read", "create", "modify", "delete", "execute")


def enter(spec: SimpleNamespace, frame: FrameType) -> object:
    """Open a guard for the code that this frame will run; return what closes it."""
    around = current()
    caller = _opener(frame)
    if around is not None and _is_guarded_code(caller):
        return refusal(around, "sandbox_guard_denied", None, "process_guard_context")
    if around is None:
        core.trust_nameless(caller)
    core.sweep(_closed)
    state = new_state(spec, around)
    if state is None:
        return refusal(around or core.CLOSED, "sandbox_guard_denied", None, "changed classes")
    return _open(state, caller)


def new_state(spec: SimpleNamespace, around: State | None) -> State | None:
    """Return the state of a subject inside the guard around it, None where classes were changed."""
    policy = policy_of(None if around is None else around.policy, spec)
    if policy is None:
        return None
    outer = None if policy.fresh else around
    runtime = spec.runtime if outer is None else outer.runtime
    state = SimpleNamespace(
        token=core.new_token(),
        bypass=False,
        subject=spec.subject,
        kind=str(spec.kind),
        policy=policy,
        runtime=runtime,
        roots=with_runtime(policy, runtime),
        imports=_imports(opened(spec.imports), policy, outer),
        subprocess=spec.subprocess,
        identity=_identity(spec.identity, outer),
        **_from_policy(policy, spec.before if around is None else around.before),
        **_memories(),
    )
    state.info = lambda: info_of(state)
    state.variables = lambda: unguarded(state, VARIABLES[0], _inherited(state))
    if spec.only_network:
        _keep_the_rest(state, around)
    return state


def _from_policy(policy: SimpleNamespace, before: tuple[str, ...]) -> dict[str, Any]:
    """Return what the policy says, and through whom its outermost subject was started."""
    return {
        "before": before,
        "chain": before + policy.chain_texts,
        "allow_chain": ((),) * len(before) + policy.allow_chain,
        "flat": policy.flat,
        "dependencies": policy.dependencies,
        "network": policy.network,
        "hosts": policy.hosts,
        "http": policy.http,
    }


def _memories() -> dict[str, Any]:
    """Return what an activation remembers, empty: see where each is filled."""
    kept = ("seen", "answers", "places", "reached", "names")
    return {name: {} for name in kept} | {"until_asked": 0.0}


def _imports(own: frozenset[str], policy: SimpleNamespace, outer: State | None) -> frozenset[str]:
    """Return the opened roots: merged as rules are, and never widened by an asset."""
    if outer is None:
        return own
    return outer.imports if policy.narrows else own | outer.imports  # type: ignore[no-any-return]


def _identity(own: tuple[Any, ...], outer: State | None) -> tuple[Any, ...]:
    """Return on whose behalf the subject acts; what it does not say, the guard around knows."""
    if outer is None:
        return own
    pairs = zip(own, outer.identity, strict=True)
    return tuple(around if mine is None else mine for mine, around in pairs)


def _keep_the_rest(state: State, around: State | None) -> None:
    """Leave everything but the network as it is outside."""
    everything = frozenset({"/"})
    state.roots = dict.fromkeys(_FILE_OPERATIONS, everything) if around is None else around.roots
    state.imports = SENSITIVE | NEVER if around is None else around.imports
    state.subprocess = True if around is None else around.subprocess


def _open(state: State, caller: FrameType | None) -> LockType:
    STATES[state.token] = state
    owner = _runner(caller)
    handle = core.new_token()
    _OPEN[handle] = SimpleNamespace(
        state=state,
        var=VAR.set(state.token),
        caller=caller,
        owner=owner,
        previous=None if owner is None else core.OWNERS.get(owner),
        thread=get_ident(),
    )
    if owner is not None:
        core.own(owner, state.token)
    return handle


def leave(handle: Any, frame: FrameType) -> Warning | None:
    """Close a guard; only the code that opened it may."""
    record = _OPEN.get(handle)
    if record is None:
        return None
    caller = _opener(frame)
    if caller is not record.caller and not _may_close(record, caller):
        return refusal(record.state, "sandbox_guard_denied", None, "leaving a guard from inside")
    del _OPEN[handle]
    _reset(record.var)
    if record.owner is not None:
        core.disown(record.owner, record.previous)
    _closed.append(record.state.token)
    if current() is None:
        repair()
    return None


def _reset(var: Token[Any]) -> None:
    try:  # noqa: SIM105 - `suppress` is everybody's class, and would run in here
        VAR.reset(var)
    except ValueError:
        pass  # closed from another context, which never had it


def _may_close(record: SimpleNamespace, caller: FrameType | None) -> bool:
    """Tell whether the opening frame is gone, as in set-up and tear-down, and nobody cheats."""
    frame = caller
    while frame is not None:
        if frame is record.caller:
            return False
        frame = frame.f_back
    return record.thread == get_ident() and not _is_guarded_code(caller)


def _opener(frame: FrameType | None) -> FrameType | None:
    while frame is not None and any(frame.f_code is code for code in SKIP):
        frame = frame.f_back
    return frame


def _runner(frame: FrameType | None) -> FrameType | None:
    """Return the frame that will run the guarded work: past generators that only yield to it."""
    while frame is not None and frame.f_back is not None:
        if not any(frame.f_back.f_code is code for code in GENERATOR_ENTER):
            return frame
        frame = _opener(frame.f_back.f_back)
    return frame


def _is_guarded_code(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename.startswith(RUNTIME_FILES[0]):
        frame = frame.f_back
    if frame is None or id(frame.f_code) in core.HOST:
        return False
    return frame.f_code.co_filename in core.MARKED


def bypass(frame: FrameType) -> object:
    """Let the runtime's own code act without a guard; refuse everybody else's."""
    around = current()
    if around is None:
        return None
    caller = _opener(frame)
    if caller is None or not caller.f_code.co_filename.startswith(RUNTIME_FILES[0]):
        return refusal(around, "sandbox_guard_denied", None, "process_guard_bypass_context")
    if NOTE:  # what cannot be written down is not opened
        place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        unguarded(around, NOTE[1], info_of(around), place)
    state = SimpleNamespace(**vars(around))
    state.bypass, state.token = True, core.new_token()
    state.opener, state.around = _runner(caller), around
    return _open(state, caller)


def carried() -> LockType | None:
    """Return the token that work made here carries along, None where no guard is active."""
    state = current()
    return None if state is None else state.token


def stamp(context: Any) -> None:
    """Put the active guard into a context that somebody made without it."""
    state = current()
    if state is None:
        return
    core.LOOP_THREADS.add(get_ident())
    core.watch()
    if context is not None and context.get(VAR) is None:
        context.run(VAR.set, state.token)


def runs_callbacks(code: CodeType) -> None:
    """Note the code of the frame in which an event loop runs a callback in its own context."""
    if not core.HANDLE_RUN:
        core.HANDLE_RUN.append(code)


def info() -> object:
    """Return the active guard as plain values, None where there is none."""
    state = current()
    return None if state is None else info_of(state)


def info_of(state: State) -> tuple[Any, ...]:
    """Return a state as plain values."""
    return (
        state.kind,
        state.subject,
        state.chain,
        state.allow_chain,
        state.flat,
        state.identity,
        tuple(sorted(state.imports)),
        state.subprocess,
    )


def _inherited(state: State) -> tuple[Any, ...]:
    """Return a state as its children know it: without the rules that a denial closes."""
    front, flat, rest = info_of(state)[:4], state.flat, info_of(state)[5:]
    return (*front, without_denied(state, flat)[0], *rest)


def info_by_token(token: object) -> tuple[Any, ...]:
    """Return the state of a token as plain values, for whoever answers about approvals."""
    return info_of(core.state_of(token))


def protect(prefix: str) -> Warning | None:
    """Add a file, or a folder, that no rule opens."""
    state = current()
    if state is not None:
        return refusal(state, "sandbox_guard_denied", None, "protect")
    PROTECTED[0] = (*PROTECTED[0], prefix)
    return None


def use_approvals(
    asker: Any,
    notes: tuple[Any, ...],
    modules: Any,
    builtins: Any,
) -> Warning | None:
    """Change who answers about approvals and who keeps notes, unless guarded code asks for it."""
    state = current()
    if state is not None:
        return refusal(state, "sandbox_guard_denied", None, "use_approvals")
    ASK.clear()
    CHOSEN[:] = [True]
    NOTE[:] = notes
    core.ANSWERED[:] = [] if asker is None else [True]
    watch_answers(modules, builtins)
    if asker is not None:
        ASK.append(asker)
    return None


def is_chosen() -> bool:
    """Tell whether the application has said who answers about approvals; guarded code has."""
    return current() is not None or bool(CHOSEN)


def approvals() -> object:
    """Return who answers about approvals, None where nobody does; refuse guarded code."""
    state = current()
    if state is not None:
        return refusal(state, "sandbox_guard_denied", None, "approvals")
    return ASK[0] if ASK else None


def external_access(*question: Any) -> object:
    """Put an explicit question to whoever answers; None where no guard is active.

    The subject is the one of the active guard, whatever is asked.
    """
    state = current()
    if state is None:
        return None
    if not ASK:
        why = "no approval service is registered (runtime.use_approvals, or DEMOCRAI_STATE_DIR)"
        return refusal(state, "sandbox_external_access_check_failed", None, "", why)
    plain = tuple(
        item if item is None or type(item) is bool else text_of(item) for item in question
    )
    restore_answers()
    desk: Any = ASK[0]
    answer = unguarded(state, desk.check, info_of(state), *plain)
    if answer[0] is True:
        _forget_refusals(state)
    return answer


def _forget_refusals(state: State) -> None:
    """Forget what was refused: a person may have allowed it since."""
    for key in [key for key, answer in list(state.answers.items()) if answer is not None]:
        state.answers.pop(key, None)
