"""A blocked import that a person approves in the page goes on by itself, as whoever asked."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import BrowserContext
    from web.serving import Serving

APPLICATION = Path(__file__).with_name("importing_application.py")


@pytest.fixture
def application(serving: Serving, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    file = tmp_path / "customer.csv"
    file.write_text("ada,1815")
    environment = {
        **os.environ, "DEMOCRAI_STATE_DIR": str(serving.state),
        "DEMOCRAI_TEMP_DIR": str(tmp_path / "temp"),
    }  # fmt: skip
    command = [sys.executable, str(APPLICATION), str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_a_blocked_import_goes_on_once_it_is_approved_in_the_page(
    serving: Serving, browser: BrowserContext, application: subprocess.Popen[str]
) -> None:
    assert application.stdout is not None
    assert application.stdout.readline() == "blocked sandbox_filesystem_denied\n"
    word, code, request_id = application.stdout.readline().split()
    assert (word, code) == ("asked", "not_enabled")
    page = browser.new_page()
    page.set_default_timeout(30_000)
    page.goto(serving.link)
    page.wait_for_url(f"{serving.origin}/")
    button = f".card[data-id='{request_id}'] [data-act=session]"
    page.wait_for_selector(button)
    until = time.monotonic() + 60
    while serving.service.get(request_id).state == "pending":
        assert time.monotonic() < until
        # A click counts half a second after the list has moved; before, it does nothing.
        if page.locator(button).count():
            page.locator(button).dispatch_event("click")
        page.wait_for_timeout(700)
    assert application.stdout.readline() == "resumed module:notes 7 s-1 3 ada,1815\n"
    page.close()
    ended = serving.service.get(request_id)
    while ended.resume_state == "started":
        ended = serving.service.get(request_id)
    assert ended.resume_state == "done"
