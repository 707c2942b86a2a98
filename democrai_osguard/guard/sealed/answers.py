"""The answer about one act: rules first looked up as plain sets, then the approval service.

What the rules of a whole chain allow was computed when the guard was entered, so that no class
takes part here. What the service answers is remembered in the activation, for a moment: what
people decide meanwhile counts.
"""

from __future__ import annotations

from posix import fspath
from typing import TYPE_CHECKING, Any

from democrai_osguard.guard.sealed.core import CLOSED, MISSING, State, current, unguarded
from democrai_osguard.guard.sealed.integrity import answers_intact, restore_answers

if TYPE_CHECKING:
    from collections.abc import Callable

# The approval service, as a public function behind plain values; empty where there is none.
ASK: list[Callable[..., Any]] = []
CHOSEN: list[bool] = []  # filled once the application has said who answers, also where nobody does
NOTE: list[Callable[..., Any]] = []  # who writes refusals and bypasses down, likewise
PROTECTED: list[tuple[str, ...]] = [()]  # prefixes of files that no rule opens
_NEVER = ("/proc/self/mem", "/proc/self/task/", "/proc/kcore", "/proc/kmsg", "/dev/mem")
FAILURE = "sandbox_external_access_check_failed"
_ROOM = 16_384
_REFUSAL_FIELDS = 7
_CHANGED = "the code that answers about approvals was changed"


def covered(roots: frozenset[str], path: str) -> bool:
    """Tell whether a path is one of the roots or lies beneath one."""
    while path not in roots:
        cut = path.rfind("/")
        if cut <= 0:
            return "/" in roots
        path = path[:cut]
    return True


def refusal(state: State, code: str, operation: str | None, target: str, why: str = "") -> Warning:
    """Return a refusal as plain values; outside it becomes an exception of its own type."""
    return Warning(code, state.kind, state.subject, operation, target, state.chain, why)


def noted(answer: Any) -> Any:
    """Return what is handed out; where it is a refusal, it is written down first."""
    if NOTE and type(answer) is Warning and len(answer.args) == _REFUSAL_FIELDS:
        state = current() or CLOSED
        try:
            unguarded(state, NOTE[0], answer.args, state.identity)
        except Exception:  # noqa: BLE001 - it stays refused, whatever becomes of the note
            return answer
    return answer


def about_path(state: State, operation: str, path: str) -> Warning | None:
    """Return None where the act on a normal path is allowed, else the refusal."""
    key = operation, path
    known = state.answers.get(key, MISSING)
    if known is not MISSING:
        return known  # type: ignore[no-any-return] # what was stored below
    if is_protected(path, operation):
        return refusal(state, _code(operation), operation, path, "it belongs to the guard itself")
    declared = covered(state.roots.get(operation, frozenset()), path)
    answer = None
    if ASK:
        answer = consult(state, "filesystem", operation, path, declared=declared)
    elif not declared:
        answer = refusal(state, _code(operation), operation, path)
    return remember(state, key, answer)


def consult(  # noqa: PLR0913 - an act, and what the rules say of it
    state: State, resource: str, operation: str, target: str, *, declared: bool, code: str = ""
) -> Warning | None:
    """Ask the service, which may deny what is declared and approve what is not."""
    code = code or _code(operation)
    restore_answers()
    try:
        verdict = unguarded(state, ASK[0], state.token, resource, operation, target, declared)
    except Exception as error:  # noqa: BLE001 - handed on without our frames
        text = f"{type(error).__name__}: {error}"
        return refusal(state, FAILURE, operation, target, text)
    if verdict is True:
        # Once more where the service opens something: another thread may change it meanwhile.
        if declared or answers_intact():
            return None
        verdict = _CHANGED
    why = verdict if type(verdict) is str else ""
    return refusal(state, code, operation, target, why)


def without_denied(state: State, rules: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return rules for a child without what is denied, what is closed beneath, and open globs."""
    desk: Any = ASK[0] if ASK else None
    restore_answers()  # before anything is asked of it
    if desk is None or not hasattr(desk, "for_child"):
        return rules, (), ()
    try:
        answer: tuple[Any, ...] = unguarded(state, desk.for_child, state.info(), rules)
    except Exception as error:  # noqa: BLE001 - handed on without our frames
        text = f"{type(error).__name__}: {error}"
        raise refusal(state, FAILURE, None, "a child's rules", text) from None
    if not answers_intact():  # another thread may change it meanwhile
        raise refusal(state, FAILURE, None, "a child's rules", _CHANGED)
    return answer


def remember(state: State, key: object, answer: Warning | None) -> Warning | None:
    """Keep an answer, but never a failure to find out. `core.timely` drops it in time."""
    if answer is None or answer.args[0] != FAILURE:
        if len(state.answers) > _ROOM:
            state.answers.clear()
        state.answers[key] = answer
    return answer


def is_protected(path: str, operation: str) -> bool:
    """Tell whether a path is the guard's own: its database and key, or this process's memory.

    So is a folder on the way there that is to go away: what is moved with it would be kept no more.
    """
    if path.startswith(PROTECTED[0]):
        return True
    if operation == "delete" and any(each.startswith(f"{path}/") for each in PROTECTED[0]):
        return True
    return path.startswith(_NEVER) and (not path.startswith("/proc/self/task/") or _is_mem(path))


def _is_mem(path: str) -> bool:
    return path.endswith("/mem")


def _code(operation: str) -> str:
    if operation == "execute":
        return "sandbox_filesystem_execute_denied"
    return "sandbox_filesystem_denied"


def as_text(path: str | bytes) -> str:
    """Return a path argument as text."""
    plain = fspath(path)
    return plain if isinstance(plain, str) else plain.decode("utf-8", "surrogateescape")
