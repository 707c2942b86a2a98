"""Entering and leaving guards, and running handed-out work under the guard that made it.

Only the frame that opened a guard closes it. Code that was loaded under a guard opens none,
since rules merge: it would widen its own.
"""

from __future__ import annotations

from _thread import LockType, get_ident
from _weakref import ref
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
from democrai_osguard.guard.sealed.callers import is_guarded_code, makers, opener, past_helpers
from democrai_osguard.guard.sealed.core import STATES, VAR, State, current, text_of, unguarded
from democrai_osguard.guard.sealed.frames import back
from democrai_osguard.guard.sealed.imports import NEVER, SENSITIVE, opened
from democrai_osguard.guard.sealed.integrity import (
    repair,
    restore_answers,
    watch_answers,
    watch_over,
)
from democrai_osguard.guard.sealed.origins import RUNTIME, STANDARD, is_genuine, origin
from democrai_osguard.guard.sealed.own_folders import protect_own, runtime_table
from democrai_osguard.guard.sealed.policies import policy_of, with_runtime
from democrai_osguard.guard.sealed.rules_alone import from_rules

if TYPE_CHECKING:
    from contextvars import Token

GENERATOR_ENTER: list[CodeType] = []
DOOR: list[Any] = []  # what makes a door, and ties arguments to a function
PARTIAL: list[Any] = []
VARIABLES: list[Any] = []  # the public function that dumps a child's environment
_DESCRIPTIONS: dict[int, tuple[Any, Any]] = {}  # guards by identity: a reference, what they allow
_UNKNOWN = None, None
_OPEN: dict[LockType, SimpleNamespace] = {}
_closed: list[LockType] = []
_PLAIN = frozenset({str, int, bool})
_ENTERING = "process_guard_context"
_BYPASSING = "process_guard_bypass_context"
_FILE_OPERATIONS = ("read", "create", "modify", "delete", "execute")


def describe(owner: object, *fields: Any) -> Warning | None:
    """Remember what the guard that is this object allows, as plain values."""
    if not is_plain(fields):
        raise TypeError("a guard is described by plain values")
    kind, subject, rules, imports, identity, (subprocess, include, only_network), before = fields
    around, frame = current(), opener()
    # Whoever makes a guard says what it allows, whoever enters it later.
    if around is not None and is_guarded_code(frame):
        return refusal(around, "sandbox_guard_denied", None, _ENTERING)
    spec = SimpleNamespace(
        kind=kind,
        subject=subject,
        rules=rules,
        imports=imports,
        identity=identity,
        subprocess=subprocess,
        include=include,
        only_network=only_network,
        before=before,
        makers=makers(frame),
    )
    gone = DOOR[0](PARTIAL[0](_forget_description, id(owner)))
    _DESCRIPTIONS[id(owner)] = ref(owner, gone), spec
    return None


def _forget_description(key: int, owner: ref[object]) -> None:
    """Drop what belongs to an object that is gone; called by the interpreter, or by anybody."""
    known = _DESCRIPTIONS.get(key)
    if known is not None and known[0] is owner and owner() is None:
        del _DESCRIPTIONS[key]


def is_plain(value: Any) -> bool:
    """Tell whether nothing in a value has methods of its own, or changes."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return value is None or type(value) in _PLAIN


def enter(owner: object) -> object:
    """Open the guard that is this object; return what closes it."""
    around, caller = current(), opener()
    reference, spec = _DESCRIPTIONS.get(id(owner), _UNKNOWN)
    if reference is None or reference() is not owner:
        return refusal(around or core.CLOSED, "sandbox_guard_denied", None, _ENTERING)
    if around is None:
        watch_over()
        protect_own()
    if around is not None and is_guarded_code(caller, spec.makers):
        return refusal(around, "sandbox_guard_denied", None, _ENTERING)
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
    if outer is not None:
        runtime = outer.runtime
    else:
        runtime = runtime_table() if around is None and spec.include else {}
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


def leave(handle: Any) -> Warning | None:
    """Close a guard; only the code that opened it may."""
    record = _OPEN.get(handle) if type(handle) is LockType else None
    if record is None:
        return None
    caller = opener()
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
        frame = back(frame)
    return record.thread == get_ident() and not is_guarded_code(caller)


def _runner(frame: FrameType | None) -> FrameType | None:
    """Return the frame that will run the guarded work: past generators that only yield to it."""
    beneath = None if frame is None else back(frame)
    while beneath is not None and any(beneath.f_code is code for code in GENERATOR_ENTER):
        frame = past_helpers(back(beneath))
        beneath = None if frame is None else back(frame)
    return frame


def bypass() -> object:
    """Let the runtime's own code act without a guard; refuse everybody else's."""
    around = current()
    if around is None:
        return None
    caller = opener()
    # Code of the runtime that calls what it is handed does not name what it opens.
    if caller is None or not (origin(caller.f_code) == RUNTIME and _names_bypass(caller)):
        return refusal(around, "sandbox_guard_denied", None, _BYPASSING)
    if NOTE:  # what cannot be written down is not opened
        place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        unguarded(around, NOTE[1], info_of(around), place)
    state = SimpleNamespace(**vars(around))
    state.bypass, state.token = True, core.new_token()
    state.opener, state.around = _runner(caller), around
    return _open(state, caller)


def _names_bypass(frame: FrameType) -> bool:
    return _BYPASSING in frame.f_code.co_names


def carried() -> LockType | None:
    """Return the token that work made here carries along, None where no guard is active."""
    state = current()
    return None if state is None else state.token


def runs_callbacks(code: Any) -> None:
    """Note the code of the frame in which an event loop runs a callback in its own context."""
    if not core.HANDLE_RUN and type(code) is CodeType and _runs_a_handle(code):
        core.HANDLE_RUN.append(code)


def _runs_a_handle(code: CodeType) -> bool:
    events = origin(code) == STANDARD and is_genuine(code)
    return events and code.co_qualname == "Handle._run"


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
    plain = tuple(
        item if item is None or type(item) is bool else text_of(item) for item in question
    )
    if not ASK:
        return from_rules(state, plain)
    restore_answers()
    desk: Any = ASK[0]
    answer = unguarded(state, desk.check, info_of(state), *plain)
    if answer[0] is True:
        _forget_refusals(state)
    return answer


def _forget_refusals(state: State) -> None:
    """Forget what was refused: a person may have allowed it since."""
    for key in [key for key, answer in state.answers.copy().items() if answer is not None]:
        state.answers.pop(key, None)
