"""What the command line prints: safe for a terminal, or JSON for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from democrai_osguard.errors import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["counted", "printable", "say", "say_fields", "say_json"]


def say(text: str = "") -> None:
    """Print one line of words, made safe."""
    click.echo(printable(text))


def say_json(document: object) -> None:
    """Print a document for machines, ASCII only and with stable order."""
    click.echo(json.dumps(document, indent=2))


def say_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    rows = [(name, value) for name, value in fields if value]
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        say(f"  {name:<{width}}  {value}")
