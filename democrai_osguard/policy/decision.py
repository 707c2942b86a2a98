"""The three answers, each with the reason that a person is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from democrai_osguard.access import AccessRequest, Rule, Subject


@dataclass(frozen=True, slots=True)
class Allow:
    """The act may go on. The code says what allows it, the rule exactly which line."""

    code: str  # sandbox_allowed, session_approval or permanent_approval
    rule: Rule
    subject: Subject

    @property
    def reason(self) -> str:
        """Why, in a sentence."""
        sources = {
            "sandbox_allowed": f"{self.subject} declares {self.rule}",
            "session_approval": f"approved for this session: {self.rule}",
            "permanent_approval": f"approved permanently: {self.rule}",
        }
        return sources.get(self.code, f"{self.code}: {self.rule}")


@dataclass(frozen=True, slots=True)
class Deny:
    """The act is refused, and nothing short of another policy changes that."""

    request: AccessRequest
    reason: str
    rule: Rule | None = None
    code: str = "denied"

    @property
    def hint(self) -> str:
        """What can be done about it."""
        if self.rule is not None:
            return "An operator refused this; only an operator can lift it."
        return "No approval lifts this; use a path that resolves, or another profile."


@dataclass(frozen=True, slots=True)
class RequiresApproval:
    """Nothing allows the act yet; a person may."""

    request: AccessRequest
    reason: str
    declarable: bool = True  # whether a line in the manifest would do
    code: str = "not_enabled"

    @property
    def hint(self) -> str:
        """What to declare, or whom to ask."""
        if not self.declarable:
            return "Ask an operator to approve it; a declaration alone does not open it."
        return (
            f"Declare {declaration(self.request.rule)} under 'access' in the manifest of"
            f" {self.request.subject}, or ask an operator to approve it."
        )


Decision = Allow | Deny | RequiresApproval


def declaration(rule: Rule) -> str:
    """Return the manifest line that grants a rule."""
    line = {
        "resource_type": str(rule.resource_type),
        "operation": str(rule.operation),
        "target": rule.target,
    }
    return json.dumps(line)
