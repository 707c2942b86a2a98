"""A file that is resized after a yes is held to the limit of who asked, not to the broker's."""

from __future__ import annotations

import resource
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from kernel.people import answering

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from kernel.conftest import Launch

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp")

SIZE = 3000  # of the file at first
SCRIPT = """
import errno, os, resource, signal
from concurrent.futures import ThreadPoolExecutor as pool
def limit(soft):
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
def say(word):  # a function, so that Python has handled the signal by then
    print(word, *heard)
heard = []
signal.signal(signal.SIGXFSZ, lambda *_: heard.append("SIGXFSZ"))
try:
    {0}
    say("done")
except OSError as error:
    say(errno.errorcode[error.errno])
"""
# What is done, under which limit, what comes of it, and how large the file is then.
RESIZED = {
    "larger": ("os.truncate('file', 5000)", "4k", "EFBIG SIGXFSZ\n", SIZE),
    "larger, without a limit": ("os.truncate('file', 5000)", None, "done\n", 5000),
    "up to the limit": ("os.truncate('file', 4096)", "4k", "done\n", 4096),
    "smaller, and above the limit": ("os.truncate('file', 2000)", "1k", "done\n", 2000),
    "above its own limit": ("limit(10); os.truncate('file', 4000)", "4k", "EFBIG SIGXFSZ\n", SIZE),
    "with its limit raised again": (
        "limit(10); limit(4096); os.truncate('file', 4000)", "4k", "done\n", 4000,
    ),
    "by a thread": (
        "pool().submit(os.truncate, 'file', 4000).result()", "2k", "EFBIG SIGXFSZ\n", SIZE,
    ),
    "to less than nothing": ("os.truncate('file', -1)", "4k", "EINVAL\n", SIZE),
}  # fmt: skip


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(bytes(SIZE))
    return tmp_path


def words(act: str, limit: str | None) -> tuple[str, ...]:
    limits = ("--limit", f"fsize={limit}") if limit else ()
    return (*limits, "--", sys.executable, "-I", "-c", act)


def held(
    launch: Launch, work: Path, act: str, limit: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it so that it waits for an answer, which is yes."""
    with answering(lambda _: "yes") as (desk, asked):
        result = launch(
            "--supervised", "--subject", "tool:t", "--ask-fd", str(desk), *words(act, limit),
            cwd=work, keep=(desk,),
        )  # fmt: skip
    assert set(asked) == {"modify file"}
    return result


@pytest.mark.parametrize("act", RESIZED)
def test_a_file_is_resized_within_the_limit_of_who_asked(
    act: str, launch: Launch, work: Path
) -> None:
    script, limit, said, size = RESIZED[act]
    assert held(launch, work, SCRIPT.format(script), limit).stdout == said
    assert (work / "file").stat().st_size == size


@pytest.mark.parametrize("act", RESIZED)
def test_the_kernel_answers_the_same_where_nobody_is_asked(
    act: str, launch: Launch, work: Path
) -> None:
    script, limit, said, size = RESIZED[act]
    options = words(SCRIPT.format(script), limit)
    assert launch("--modify", work / "file", *options, cwd=work).stdout == said
    assert (work / "file").stat().st_size == size


def test_who_does_not_handle_the_signal_ends_by_it(launch: Launch, work: Path) -> None:
    act = SCRIPT.format("signal.signal(signal.SIGXFSZ, signal.SIG_DFL); os.truncate('file', 5000)")
    assert held(launch, work, act, "4k").returncode == -signal.SIGXFSZ
    assert (work / "file").stat().st_size == SIZE


def test_a_limit_of_the_launcher_that_the_command_has_raised_holds_no_more(
    launch: Launch, work: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        act = SCRIPT.format(f"limit({hard}); os.truncate('file', 2 << 20)")
        assert held(launch, work, act).stdout == "done\n"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.needs("root")
def test_where_the_limit_cannot_be_read_nothing_is_resized(launch: Launch, work: Path) -> None:
    act = SCRIPT.format("os.setresuid(1, 0, 0); os.truncate('file', 4000)")
    assert held(launch, work, act).stdout == "EPERM\n"
    options = words(act, None)
    assert launch("--modify", work / "file", *options, cwd=work).stdout == "done\n"
