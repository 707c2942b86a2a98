"""Contact with an MCP server: its endpoint is checked first, and inside there is nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from democrai_osguard.access import Operation, ResourceType
from democrai_osguard.guard.contexts import current_guard, process_guard_context
from democrai_osguard.guard.installation import doors, install
from democrai_osguard.guard.outcome import as_error
from democrai_osguard.refusals import ApprovalCheckFailed, NetworkDenied
from democrai_osguard.runtime.contexts import Identity, mcp_context
from democrai_osguard.targets import normalize_target

if TYPE_CHECKING:
    # allowed, requires approval, code, message, the id of the pending request
    Answer = tuple[bool, bool, str, str, str | None]


def contact_mcp(name: str, endpoint: str, **identity: Unpack[Identity]) -> process_guard_context:
    """Return the guard of an MCP server whose endpoint may be contacted.

    It may be if the subject around declares it, or if an operator approved `connect` for the
    server itself; otherwise a person is asked, and NetworkDenied is raised. Nothing is sent before.
    """
    (lambda: None).__code__  # noqa: B018 - names are put right; see `guard.sealed.hook`
    target = normalize_target(ResourceType.NETWORK, endpoint, operation=Operation.CONNECT)
    install()
    if current_guard() is None or not _ask(target, register=False)[0]:
        with process_guard_context(name, "mcp", include_runtime_paths=False, **identity):
            answer = _ask(target, register=True)
        if not answer[0]:
            raise _refusal(name, target, answer[3])
    return mcp_context(name, endpoint, **identity)


def _ask(target: str, *, register: bool) -> Answer:
    network, connect = str(ResourceType.NETWORK), str(Operation.CONNECT)
    answer: Any = doors["external_access"](network, connect, target, register, None, None)
    if isinstance(answer, BaseException):
        raise as_error(answer) from None
    if isinstance(answer[0], str):
        raise ApprovalCheckFailed(f"{ApprovalCheckFailed.code}: {': '.join(answer[2])}")
    return answer  # type: ignore[no-any-return] # five plain values


def _refusal(name: str, target: str, why: str) -> NetworkDenied:
    text = f"{NetworkDenied.code}:{name}:{Operation.CONNECT}:{target}"
    chain = (f"mcp:{name}",)
    return NetworkDenied(
        text, subject=name, operation=Operation.CONNECT, target=target, chain=chain, hint=why
    )
