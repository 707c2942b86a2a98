"""`sdk.tasks`: no child stays behind, whatever its start or its wait was broken off by."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from sdk.test_child_processes import IN_THE_KERNEL, RUN, SHELL, either, programs

from democrai_osguard.errors import ContractError

if TYPE_CHECKING:
    from sdk.host import Host

pytestmark = [IN_THE_KERNEL, pytest.mark.usefixtures("either")]
assert either.__name__  # the fixture: with the launcher, and without it

BREAK_OFF = """
import asyncio
from democrai_osguard import sdk

async def broken_off(seconds):
    try:
        start = sdk.tasks.run_subprocess("sleep", "9.07", stdout=sdk.tasks.PIPE, timeout=60)
        process = await asyncio.wait_for(start, seconds)
    except (TimeoutError, asyncio.TimeoutError):
        return "broken off"
    process.kill()
    await process.wait()
    return "started"

def main(seconds):
    return asyncio.run(broken_off(seconds))
"""


def with_word(word: str) -> list[int]:
    """Return the processes that were started with this word, and have not ended."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and word in _words(name)]


def _words(process: str) -> list[str]:
    try:
        with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read().split("\0")
    except OSError:
        return []


def children() -> list[str]:
    """Return the states of this process's children, but for the launcher."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        numbers = file.read().split()
    return [number for number in numbers if not any(".warm" in word for word in _words(number))]


def guarded(host: Host, code: str, *args: object, **options: object) -> Any:  # noqa: ANN401 - as it returns
    main = host.load(code)
    with host.guard(access=programs(*SHELL)):
        return main(*args, **options)


@pytest.mark.parametrize("seconds", [0, 0.001, 0.003, 0.006, 0.01, 0.02])
def test_one_whose_start_is_broken_off_is_ended_and_reaped(host: Host, seconds: float) -> None:
    guarded(host, RUN, "true")  # so that the launcher is warm, as mostly
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        guarded(host, BREAK_OFF, seconds)
        assert with_word("9.07") == []
        assert children() == []
    assert len(os.listdir("/proc/self/fd")) <= before


def test_the_start_of_a_cold_launcher_can_be_broken_off_too(host: Host) -> None:
    assert guarded(host, BREAK_OFF, 0.001) == "broken off"
    assert with_word("9.07") == []
    assert guarded(host, RUN, "sh", "-c", "echo well")[1] == "well\n"


WRONG: dict[str, tuple[dict[str, object], type[Exception]]] = {
    "a time that is a word": ({"timeout": "abc"}, TypeError),
    "a time that is no number": ({"timeout": float("nan")}, ContractError),
    "less than no line": ({"limit": -1}, ValueError),
    "a line of words": ({"limit": "x"}, TypeError),
    "a size that is a word": ({"max_output": "x"}, TypeError),
    "less than no output": ({"max_output": -1}, ValueError),
    "a word with an end in it": ({"cwd": "/\0"}, ValueError),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_are_checked_before_anything_is_started(host: Host, name: str) -> None:
    options, error = WRONG[name]
    with pytest.raises(error):
        guarded(host, RUN, "sleep", "9.08", **options)
    time.sleep(0.05)
    assert with_word("9.08") == []
    assert children() == []


SYNC = """
import time
from democrai_osguard import sdk

def main(*command, **options):
    began = time.monotonic()
    try:
        sdk.tasks.run_subprocess_sync(*command, **options)
    except (TimeoutError, sdk.tasks.OutputTooLarge) as error:
        return type(error).__name__, time.monotonic() - began
    return "ended", time.monotonic() - began
"""
SCRIPTS = {
    "one that is waited for": "sleep 9.09 & wait",
    "one that holds the streams": "sleep 9.09 & sleep 9.09",
    "a grandchild of its own": "sh -c 'sh -c \"sleep 9.09; :\"; :' & wait",
    "one that ignores signals": "trap '' TERM INT HUP; sleep 9.09 & wait",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_timeout_ends_what_the_child_has_started_and_comes_in_time(host: Host, name: str) -> None:
    error, seconds = guarded(host, SYNC, "sh", "-c", SCRIPTS[name], timeout=1)
    assert error == "TimeoutError"
    assert seconds < 4
    assert _soon_nobody_with("9.09")
    assert children() == []


def test_what_the_child_has_orphaned_ends_with_it_where_the_launcher_holds_it(host: Host) -> None:
    is_plain = os.environ.get("DEMOCRAI_SANDBOX_OS_ENABLED") == "false"
    script = "(sleep 6.14 & sleep 0.5); sleep 9.14"
    error, seconds = guarded(host, SYNC, "sh", "-c", script, timeout=1.5)
    assert (error, seconds < 4) == ("TimeoutError", True)
    assert _soon_nobody_with("9.14")
    assert _ended("6.14") == is_plain


def test_too_much_output_ends_what_the_child_has_started(host: Host) -> None:
    script = "sleep 9.11 & while :; do echo 0123456789; done"
    error, seconds = guarded(host, SYNC, "sh", "-c", script, max_output=10_000)
    assert (error, seconds < 4) == ("OutputTooLarge", True)
    assert _soon_nobody_with("9.11")


def test_what_an_ended_child_leaves_does_not_hold_up_a_timeout_and_goes_on(host: Host) -> None:
    """As with subprocess: the child has ended, and what it left is no longer its own."""
    error, seconds = guarded(host, SYNC, "sh", "-c", "sleep 7.12 & sleep 0.5", timeout=1)
    assert (error, 1 <= seconds < 4) == ("TimeoutError", True)
    assert _ended("7.12") == 1


def test_a_kill_is_for_the_child_alone_as_with_subprocess(host: Host) -> None:
    code = """
    import asyncio
    from democrai_osguard import sdk

    async def run():
        process = await sdk.tasks.run_subprocess(
            "sh", "-c", "sleep 4.13 & sleep 0.5; echo; wait", stdout=sdk.tasks.PIPE)
        await process.stdout.readline()
        process.kill()
        return await process.wait()

    def main():
        return asyncio.run(run())
    """
    assert guarded(host, code) == -9
    assert _ended("4.13") == 1


def _soon_nobody_with(word: str) -> bool:
    for _ in range(100):
        if not with_word(word):
            return True
        time.sleep(0.02)
    return False


def _ended(word: str) -> int:
    """End what was left on purpose, and return how many there were."""
    left = with_word(word)
    for number in left:
        os.kill(number, signal.SIGKILL)
    return len(left)
