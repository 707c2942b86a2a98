"""Shared by all tests: features that a host must offer, and a summary of what was not run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from host_features import offers

MUST_RUN = frozenset(filter(None, os.environ.get("OSGUARD_MUST_RUN", "").split(",")))
_lacking: dict[str, int] = {}


def pytest_configure() -> None:
    # In the background (`nohup`, a script's `&`) these come ignored, and children inherit that.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_runtest_setup(item: pytest.Item) -> None:
    needed = [name for marker in item.iter_markers("needs") for name in marker.args]
    for name in needed:
        if offers(name):
            continue
        if name in MUST_RUN:
            pytest.fail(f"this host must provide {name} (OSGUARD_MUST_RUN)")
        _lacking[name] = _lacking.get(name, 0) + 1
        pytest.skip(f"host lacks {name}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, count in sorted(_lacking.items()):
        terminalreporter.write_line(f"not run here: {count} test(s), the host lacks {name}")
    if not _lacking:
        terminalreporter.write_line("no test was left out for want of a host feature")


@pytest.fixture
def repo() -> Path:
    """Return the folder that holds pyproject.toml."""
    return Path(__file__).resolve().parent.parent
