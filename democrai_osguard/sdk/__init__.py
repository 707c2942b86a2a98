"""What extensible code calls: asking for access, and running work without losing its guard.

`sdk.access` asks and decides, `sdk.tasks` runs blocking work and child processes.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    import democrai_osguard.sdk.access as access  # noqa: PLR0402 - exported by these names
    import democrai_osguard.sdk.tasks as tasks  # noqa: PLR0402 - likewise

__all__ = ["access", "tasks"]


def __getattr__(name: str) -> object:
    """Import a part when it is asked for: `tasks` needs asyncio, `access` does not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _import_module(f"{__name__}.{name}")
