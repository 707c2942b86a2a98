"""Where `tempfile` puts what guarded code makes: a folder that is open to it, not one for all."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from democrai_osguard.directories import SHARED, temp_dir
from democrai_osguard.guard.patches.rows import Replacement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def _gettempdir(doors: Mapping[str, Any]) -> Callable[[Any], Any]:
    info = doors["info"]

    def make(original: Any) -> Any:
        def _gettempdir() -> Any:
            if info() is None:
                return original()
            return next(filter(os.path.isdir, _named()), None) or original()

        return _gettempdir

    return make


def _named() -> Iterator[Any]:
    """Yield the folder that somebody chose for temporary files; then the application's own."""
    for folder in (sys.modules["tempfile"].tempdir, os.environ.get("TMPDIR")):
        if folder and folder not in SHARED:
            yield folder
    yield temp_dir()


def temporary_patches(doors: Mapping[str, Any]) -> tuple[Replacement, ...]:
    """Return the row of this area."""
    return (Replacement("tempfile", "_gettempdir", _gettempdir(doors)),)
