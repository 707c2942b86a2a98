"""A served page for each test, and one browser for all."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from host_features import require
from web.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import BrowserContext

# It talks to loopback only: nothing is looked up, fetched or reported anywhere else.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """Return a page that is being served."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    monkeypatch.setenv("DEMOCRAI_STATE_DIR", str(tmp_path / "state"))
    served = Serving(tmp_path / "state")
    yield served
    served.stop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Return Debian's Chromium with a fresh profile."""
    require("chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - for these tests only

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")),
            executable_path=shutil.which("chromium"),
            args=list(_FLAGS),
            viewport={"width": 1100, "height": 900},
        )
        yield context
        context.close()
