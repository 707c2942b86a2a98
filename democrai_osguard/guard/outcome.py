"""From what comes out of a door to what the caller sees: a value, or an exception of its own."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from democrai_osguard.access import Operation, ResourceType, Rule
from democrai_osguard.errors import NetworkTargetMissing
from democrai_osguard.policy.decision import declaration
from democrai_osguard.refusals import REFUSALS, ApprovalCheckFailed
from democrai_osguard.targets.network import parse_network

_HINTS = {
    "sandbox_filesystem_fd_denied": "Name the whole path instead of a folder's descriptor.",
    "sandbox_module_denied": "Native interop is a high trust: name the root in 'allowed_imports'.",
    "sandbox_subprocess_denied": "Start processes with sdk.tasks.run_subprocess.",
    "sandbox_env_denied": "DEMOCRAI_* variables belong to the runtime; choose another name.",
    "sandbox_introspection_denied": "Nothing lifts this inside a guard.",
    "sandbox_guard_denied": "Guarded code opens, widens and leaves no guard.",
}
_BYPASS = "process_guard_bypass_context"
_BYPASS_HINT = (
    "It is for this package's own code. Act outside of the guard, or declare what is needed."
)
_RESOURCES = {
    "sandbox_filesystem_denied": ResourceType.FILESYSTEM,
    "sandbox_filesystem_execute_denied": ResourceType.FILESYSTEM,
    "sandbox_network_denied": ResourceType.NETWORK,
}


def raised(answer: BaseException) -> NoReturn:
    """Raise what a door handed out: the original's own error, or a refusal."""
    raise as_error(answer) from None


def as_error(answer: BaseException) -> BaseException:
    """Return the exception that a plain answer stands for."""
    if type(answer) is not Warning:
        return answer
    code, kind, subject, operation, target, chain, why = answer.args
    if code == ApprovalCheckFailed.code:
        import logging  # noqa: PLC0415 - the one refusal that is logged is rare

        what = f"{operation} {target}" if operation else "a question"
        logging.getLogger("democrai_osguard").error("%s: %s: %s", code, what, why)
        hint = f"Nobody could answer, so it stays closed: {why}. Try again, or tell an operator."
        return _told(ApprovalCheckFailed(code), answer, hint)
    if code == "invalid_target":
        return _told(_target_error(target, why), answer, "Name a host or a URL.")
    text = _text(code, kind, subject, operation, target, chain)
    fields: dict[str, Any] = {"subject": subject, "operation": operation, "target": target}
    return REFUSALS[code](text, chain=chain, hint=_hint(answer.args), **fields)


def _told(error: Exception, answer: BaseException, hint: str) -> Exception:
    """Return an error that is no refusal with the fields of one."""
    _code, _kind, subject, operation, target, chain, _why = answer.args
    fields = {"subject": subject, "operation": operation, "target": target, "chain": chain}
    for name, value in (fields | {"hint": hint}).items():
        setattr(error, name, value)
    return error


def _target_error(text: str, why: str) -> ValueError:
    try:
        parse_network(text)
    except NetworkTargetMissing as error:
        error.args = (error.code,)  # there is nothing else to say
        return error.with_traceback(None)
    except ValueError as error:
        return error.with_traceback(None)
    return ValueError(why)


def _text(  # noqa: PLR0913, PLR0917 - the fields of a refusal, in their order
    code: str, kind: str, subject: str, operation: str | None, target: str, chain: tuple[str, ...]
) -> str:
    if code == "sandbox_filesystem_denied":
        who = f"subject={kind}:{subject}; operation={operation}; chain={' > '.join(chain)}"
        return f"{code}:{subject}:{target} ({who})"
    if code in {"sandbox_filesystem_execute_denied", "sandbox_filesystem_fd_denied"}:
        return f"{code}:{subject}:{target}"
    if code == "sandbox_network_denied":
        return f"{code}:{subject}:{operation}:{target}"
    return f"{code}:{target}"


def _hint(fields: tuple[Any, ...]) -> str:
    code, kind, subject, operation, target, _, why = fields
    if why:
        return f"Refused because {why}."
    resource = _RESOURCES.get(code)
    if resource is None:
        return _BYPASS_HINT if target == _BYPASS else _HINTS[code]
    try:
        line = declaration(Rule(resource, Operation(operation), target))
    except ValueError:
        return "No rule covers this."
    return (
        f"Declare {line} under 'access' in the manifest of {kind}:{subject},"
        " or ask an operator to approve it."
    )


class Callers:
    """Who calls: code of installed libraries, or code that the guard is about."""

    roots: tuple[str, ...] = ()
    through: tuple[str, ...] = ()  # modules that only pass a path on

    @classmethod
    def is_library(cls, depth: int = 2) -> bool:
        """Tell whether the nearest frame that means something is a library's.

        Nobody sees the stack in what the guard itself calls, as an opener: that is no library's.
        """
        try:
            frame = sys._getframe(depth)  # noqa: SLF001 - there is no public name for it
        except PermissionError:
            return False
        while frame.f_back is not None and frame.f_code.co_filename.startswith(cls.through):
            frame = frame.f_back
        return frame.f_code.co_filename.startswith(cls.roots)
