"""The shapes of rows in the tables of this folder."""

from __future__ import annotations

from typing import NamedTuple


class Normal(NamedTuple):
    """A text that has a normal form."""

    text: str
    normal: str
    reason: str


class Refused(NamedTuple):
    """A text that has none, and a word that the message must contain."""

    text: str
    word: str
    reason: str
    code: str = "invalid_target"


class Coverage(NamedTuple):
    """Whether a rule covers a target."""

    rule: str
    target: str
    covered: bool
    reason: str


Row = Normal | Refused | Coverage


def name_of(row: Row) -> str:
    """Return the name of a row's test."""
    return row.reason.replace(" ", "_")
