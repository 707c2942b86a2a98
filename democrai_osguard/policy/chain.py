"""The path of subjects that leads to an act, and what it allows as a whole.

Subjects with a manifest of their own merge: any of them may allow. AI assets that declare access
narrow: they and everything outside them must allow. An MCP server starts fresh.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from democrai_osguard.access import Operation, ResourceType, Rule, Subject, SubjectType
from democrai_osguard.policy.intersection import intersect, smallest
from democrai_osguard.policy.ruleset import RuleSet

if TYPE_CHECKING:
    from collections.abc import Iterable


class Nesting(Enum):
    """How a subject's rules join those of the subjects around it."""

    MERGE = auto()
    NARROW = auto()
    FRESH = auto()


_NESTING = {
    SubjectType.TOOL: Nesting.NARROW,
    SubjectType.AGENT: Nesting.NARROW,
    SubjectType.PIPELINE: Nesting.NARROW,
    SubjectType.MCP: Nesting.FRESH,
}


class Grant(NamedTuple):
    """The rule that allows an act, and the subject that contributed it."""

    rule: Rule
    subject: Subject


@dataclass(frozen=True, slots=True)
class Link:
    """One subject of a chain with the rules that it contributes, None if it declares nothing."""

    subject: Subject
    rules: RuleSet | None = None
    nesting: Nesting = field(init=False)

    def __post_init__(self) -> None:
        nesting = _NESTING.get(self.subject.type, Nesting.MERGE)
        object.__setattr__(self, "nesting", nesting)

    @property
    def has_a_say(self) -> bool:
        """Whether this subject limits what is inside it: an asset that is silent does not."""
        return self.rules is not None or self.nesting is not Nesting.NARROW

    def find(self, resource_type: ResourceType, operation: Operation, target: str) -> Grant | None:
        """Return this subject's own grant, whatever the chain says."""
        if self.rules is None:
            return None
        rule = self.rules.find(resource_type, operation, target)
        return None if rule is None else Grant(rule, self.subject)


@dataclass(frozen=True, slots=True)
class Chain:
    """Subjects from the outermost to the one that acts."""

    links: tuple[Link, ...] = ()

    @classmethod
    def of(cls, subject: Subject, rules: Iterable[Rule] | None = None) -> Chain:
        """Return a chain of one subject."""
        return cls().enter(subject, rules)

    def enter(self, subject: Subject, rules: Iterable[Rule] | None = None) -> Chain:
        """Return this chain with one more subject inside it. `None` declares nothing."""
        own = None if rules is None else RuleSet(rules)
        return Chain((*self.links, Link(subject, own)))

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """The subjects, outermost first."""
        return tuple(link.subject for link in self.links)

    @property
    def actor(self) -> Subject:
        """The subject that touches the resource."""
        return self.links[-1].subject

    def find(self, resource_type: ResourceType, operation: Operation, target: str) -> Grant | None:
        """Return what allows the act on a normal target, None where nothing does."""
        grant: Grant | None = None
        bounded = False  # whether anything outside has a say yet
        for link in self.links:
            nesting, own = link.nesting, link.find(resource_type, operation, target)
            if nesting is Nesting.MERGE:
                grant = own or grant
            elif (
                nesting is Nesting.FRESH
                or not bounded
                or (link.rules is not None and grant is not None)
            ):
                grant = own
            bounded = bounded or link.has_a_say
        return grant

    def flat(self) -> tuple[Rule, ...]:
        """Return the chain as one list of rules that allows the same, narrowing applied."""
        rules: tuple[Rule, ...] = ()
        bounded = False
        for link in self.links:
            own = () if link.rules is None else link.rules.rules
            if link.nesting is Nesting.MERGE:
                rules = (*rules, *own)
            elif link.nesting is Nesting.FRESH or not bounded:
                rules = own
            elif link.rules is not None:
                rules = intersect(rules, own)
            bounded = bounded or link.has_a_say
        return smallest(rules)

    def __str__(self) -> str:
        return " > ".join(map(str, self.subjects))
