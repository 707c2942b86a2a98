"""Who may do what, and on whose word: what manifests declare, what people decided, what runs.

Nothing is decided here, and nothing is asked of the code that runs. What a running process says of
itself is called its own word, as `democrai-osguard status` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from democrai_osguard.access import Scope, Subject
from democrai_osguard.approvals.records import session_label
from democrai_osguard.cli.approvals import say_table
from democrai_osguard.cli.output import printable, say
from democrai_osguard.errors import OsGuardError
from democrai_osguard.guard.access_variable import ACCESS, parse_access
from democrai_osguard.manifest import dump_access
from democrai_osguard.ui.sandboxes import Sandbox, running, variable_of
from democrai_osguard.ui.wording import ago

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from democrai_osguard.access import Rule
    from democrai_osguard.approvals.records import Standing
    from democrai_osguard.policy.chain import Chain

DECLARED, DECIDED, RUNS = "manifest", "decision", "process"
_CODES = {
    Scope.SESSION: "session_approval",
    Scope.PERMANENT: "permanent_approval",
    Scope.DENIED: "denied",
}


@dataclass(frozen=True, slots=True)
class Right:
    """One thing that a subject may do, or that was denied to it."""

    subject: str
    rule: Rule
    code: str  # as `sdk.access` says it
    reason: str
    known_from: str  # DECLARED, DECIDED or RUNS
    session: str | None = None  # the session's label, where it holds in one

    @property
    def allowed(self) -> bool:
        """Whether this lets the subject act."""
        return self.code != _CODES[Scope.DENIED]

    def document(self) -> dict[str, object]:
        """Return it for machines."""
        return {
            "subject": self.subject,
            "allowed": self.allowed,
            "code": self.code,
            **dump_access([self.rule])[0],
            "reason": self.reason,
            "known_from": self.known_from,
            "session": self.session,
        }


def declared_rights(chain: Chain) -> Iterator[Right]:
    """Yield what is left of the chain's declarations when narrowing is applied."""
    for rule in chain.flat():
        reason = f"{chain} declares it"
        yield Right(str(chain.actor), rule, "sandbox_allowed", reason, DECLARED)


def decided_rights(decisions: Iterable[Standing], session_key: str | None) -> Iterator[Right]:
    """Yield what people decided; with a session key, of sessions only what is of this one."""
    for each in decisions:
        if session_key is None or each.session_key in {None, session_key}:
            reason = f"decision {each.id}, {ago(each.decided_at)} ago, by {each.decided_by}"
            session = session_label(each.session_key)
            yield Right(str(each.subject), each.rule, _CODES[each.scope], reason, DECIDED, session)


def running_rights() -> Iterator[Right]:
    """Yield what the processes that run were started with, by their own word."""
    for sandbox in running():
        for rule in _claimed(sandbox):
            reason = f"process {sandbox.pid} was started with it, by its own word"
            yield Right(sandbox.subject, rule, "sandbox_allowed", reason, RUNS)


def _claimed(sandbox: Sandbox) -> tuple[Rule, ...]:
    text = variable_of(sandbox.pid, ACCESS)
    try:
        return () if text is None else parse_access(text)
    except OsGuardError:
        return ()  # nobody would have started it with this


def about(rights: Iterable[Right], subjects: Iterable[Subject]) -> list[Right]:
    """Return what is about these subjects, a task being its module; all, where none is named."""
    wanted = {str(name) for each in subjects for name in (each, each.identity)}
    return [right for right in rights if not wanted or right.subject in wanted]


def say_rights(rights: list[Right]) -> None:
    """Print rights under titles, or that there are none."""
    if not rights:
        say("nothing is declared or decided, and nothing runs: everything requires approval")
        return
    rows = [
        (
            right.subject,
            "may" if right.allowed else "may not",
            printable(str(right.rule)),
            right.session or "",
            f"{right.code}: {right.reason}",
        )
        for right in rights
    ]
    say_table(("SUBJECT", "", "WHAT", "SESSION", "WHY"), rows)
