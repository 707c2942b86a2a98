"""Shared by all tests: features that a host must offer, and a summary of what was not run."""

from __future__ import annotations

import collections
import importlib.util
import os
import signal
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from host_features import LACKING, require

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND_LOOK = "OSGUARD_SECOND_LOOK"  # set by scripts/test for what failed beside other work


def pytest_configure() -> None:
    # In the background (`nohup`, a script's `&`) these come ignored, and children inherit that.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if importlib.util.find_spec("hypothesis"):
        from hypothesis import settings  # noqa: PLC0415 - the machines of tests/vm are without it

        settings.register_profile("patient", deadline=None)  # a busy machine proves nothing
        settings.load_profile("patient")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if SECOND_LOOK in os.environ and item.get_closest_marker("always"):
        pytest.fail("this must hold each time, and it did not: no second look")
    for marker in item.iter_markers("needs"):
        for feature in marker.args:
            require(feature)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    lacking = [reason.rpartition(LACKING)[2] for reason in reasons if LACKING in reason]
    for name, count in sorted(collections.Counter(lacking).items()):
        terminalreporter.write_line(f"not run here, since the host lacks {name}: {count}")
    if not lacking:
        terminalreporter.write_line("no test was left out for want of a host feature")


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Fail a test that leaves another umask behind: the tests after it would see it."""
    before = _current_umask()
    yield
    after = _current_umask()
    os.umask(before)
    assert after == before


@pytest.fixture(autouse=True)
def _temporary_files() -> Iterator[None]:
    """Fail a test that closes the machine's folder of temporary files to others, or opens it."""
    place = tempfile.gettempdir()
    before = os.stat(place)
    yield
    after = os.stat(place)
    if after.st_mode != before.st_mode:
        os.chmod(place, stat.S_IMODE(before.st_mode))
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)


def _current_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@pytest.fixture
def repo() -> Path:
    """Return the folder that holds pyproject.toml."""
    return Path(__file__).resolve().parent.parent
