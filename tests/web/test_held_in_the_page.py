"""An act of a C program waits in the kernel until somebody has answered in the page."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import BrowserContext, Page
    from web.serving import Serving

    from democrai_osguard.approvals import PendingRequest

pytestmark = pytest.mark.needs("landlock", "landlock-truncate", "seccomp", "gcc")

DEADLINE = 60.0
PROGRAM = r"""
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    for (int each = 1; each < count; each++) {
        printf("%d\n", getpid());
        fflush(stdout);
        int file = open(words[each], O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (file < 0) {
            printf("%s\n", strerror(errno));
            continue;
        }
        close(file);
        puts("done");
        unlink(words[each]);
    }
}
"""


class Run(NamedTuple):
    process: subprocess.Popen[str]
    pid: int

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    source, made = tmp_path / "maker.c", tmp_path / "maker"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", "-o", made, source], check=True)
    return made


@pytest.fixture
def run(serving: Serving, program: Path, tmp_path: Path) -> Iterator[Run]:
    """Start the program supervised: it wants to make one file twice."""
    work = tmp_path / "work"
    work.mkdir()
    words = [
        "--supervised",
        "--subject",
        "module:notes",
        "--delete",
        str(work),
        "--",
        str(program),
        "new",
        "new",
    ]
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "democrai_osguard_launcher", *words],
        cwd=work,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "DEMOCRAI_STATE_DIR": str(serving.state),
            "DEMOCRAI_SESSION_KEY": "sess-1",
        },
    )
    assert process.stdout is not None
    yield Run(process, int(process.stdout.readline()))
    process.kill()
    process.communicate()


@pytest.fixture
def page(browser: BrowserContext, serving: Serving) -> Iterator[Page]:
    opened = browser.new_page()
    opened.set_default_timeout(DEADLINE * 1000)
    opened.goto(serving.link)
    opened.wait_for_url(f"{serving.origin}/")
    yield opened
    opened.close()


def question(serving: Serving) -> PendingRequest:
    until = time.monotonic() + DEADLINE
    while not (found := serving.service.list_requests()):
        assert time.monotonic() < until, "nothing was asked"
        time.sleep(0.05)
    return found[0]


def click(page: Page, serving: Serving, asked: PendingRequest, answer: str) -> None:
    """Click until it counts: half a second after the list has moved it does nothing."""
    button = f".card[data-id='{asked.id}'] [data-act={answer}]"
    page.wait_for_selector(button)
    until = time.monotonic() + DEADLINE
    while serving.service.get(asked.id).state == "pending":
        assert time.monotonic() < until, "the click did not count"
        with contextlib.suppress(Exception):  # the card may be gone by now
            page.locator(button).click(timeout=1000)
        page.wait_for_timeout(300)


def shown(page: Page, asked: PendingRequest) -> str:
    selector = f".card[data-id='{asked.id}']"
    page.wait_for_selector(selector)
    return page.inner_text(selector).replace("\u00a0", " ")


@pytest.mark.parametrize("answer", ["once", "session", "permanent", "denied"])
def test_a_click_lets_the_act_go_on_or_fail(
    answer: str, page: Page, serving: Serving, run: Run, tmp_path: Path
) -> None:
    asked = question(serving)
    words = shown(page, asked)
    target = tmp_path / "work/new"
    for part in (
        "Filesystem create",
        f"module:notes wants to create {target}",
        "chain: module:notes",
        f"task: process {run.pid}: {tmp_path / 'maker'} new new",
    ):
        assert part in words, part
    click(page, serving, asked, answer)
    outcome = "Permission denied\n" if answer == "denied" else "done\n"
    assert run.line() == outcome
    assert run.line() == f"{run.pid}\n"
    if answer == "once":
        again = question(serving)
        assert again.id != asked.id
        click(page, serving, again, "denied")
        outcome = "Permission denied\n"
    assert run.line() == outcome
    assert run.process.wait(DEADLINE) == 0
    scopes = ["denied"] if answer == "once" else [answer]
    assert [each.scope for each in serving.service.list_decisions()] == scopes


def test_a_child_that_is_killed_takes_its_card_with_it(
    page: Page, serving: Serving, run: Run
) -> None:
    asked = question(serving)
    shown(page, asked)
    os.kill(run.pid, signal.SIGKILL)
    page.wait_for_selector(f".card[data-id='{asked.id}']", state="detached")
    assert run.process.wait(DEADLINE) == -signal.SIGKILL
    assert serving.service.get(asked.id).state == "ended"
