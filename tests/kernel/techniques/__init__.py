"""Ways out of a sandbox, each a function of a world. One that returns has got out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .changing import CHANGING
from .ground import LIBC, MEMORY, SECRET, World, call
from .reading import READING
from .running import LOADER, RUNNING, TRUE, execute
from .sockets import SOCKETS
from .surroundings import SURROUNDINGS

if TYPE_CHECKING:
    from .ground import Technique

__all__ = ["LIBC", "LOADER", "MEMORY", "SECRET", "TECHNIQUES", "TRUE", "World", "call", "execute"]

TECHNIQUES: dict[str, Technique] = {**READING, **CHANGING, **RUNNING, **SURROUNDINGS, **SOCKETS}
