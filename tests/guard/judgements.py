"""Seeing each judgement of a guard, and which of its two nets passed it.

What an approval service is asked does not show this, because answers are remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from democrai_osguard.guard import install
from democrai_osguard.guard.installation import doors
from democrai_osguard.guard.vault import Vault

if TYPE_CHECKING:
    from types import ModuleType

WRAPPER, HOOK = "wrapper", "hook"
_SEALED = "democrai_osguard.guard.sealed"
# The functions that every decision goes through: each is given a state, an operation, a target.
_DECIDING = (("answers", "about_path"), ("network", "about_network"))

# Other judges look at the stack, where nothing may come between.
_EVENTS = ("open", "os.", "socket.", "subprocess.", "_posixsubprocess.")


class Judgements:
    """What was decided, in order: by which net, operation and target."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []
        self._net = WRAPPER

    def install(self) -> None:
        """Install the guard so that it is watched. Only in a fork: it stays so."""
        assert not doors, "the guard is there already"
        original = Vault.hide

        def hide(vault: Vault) -> None:
            original(vault)
            self._watch(vault.modules)

        with patch.object(Vault, "hide", hide):
            install()

    def of(self, operation: str, target: str) -> list[str]:
        """Return the nets that judged this, one for each time."""
        return [net for net, *act in self.seen if act == [operation, target]]

    def _watch(self, modules: dict[str, ModuleType]) -> None:
        judges = modules[f"{_SEALED}.hook"].JUDGES
        for event in [name for name in judges if name.startswith(_EVENTS)]:
            judges[event] = self._as_hook(judges[event])
        for module, name in _DECIDING:
            original = getattr(modules[f"{_SEALED}.{module}"], name)
            watched = self._noting(original)
            for other in modules.values():
                for alias in [key for key, value in vars(other).items() if value is original]:
                    setattr(other, alias, watched)

    def _as_hook(self, judge: Any) -> Any:  # noqa: ANN401 - a judge of the guard's
        def judged(state: object, args: tuple[Any, ...]) -> object:
            self._net = HOOK
            try:
                return judge(state, args)
            finally:
                self._net = WRAPPER

        return judged

    def _noting(self, decide: Any) -> Any:  # noqa: ANN401 - a function of the guard's
        def noted(state: object, operation: str, target: str) -> object:
            self.seen.append((self._net, operation, target))
            return decide(state, operation, target)

        return noted
