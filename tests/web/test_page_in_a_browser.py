"""The page as a person uses it, in headless Chromium."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from approvals.cases import ADA, BOB
from approvals.hostile import HOSTILE_PATHS, HUGE, RAW

from democrai_osguard.approvals.covering import encoded
from democrai_osguard.approvals.sql_store import SqlStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import BrowserContext, Page
    from web.serving import Serving

CALM = 700  # milliseconds: a little longer than clicks are ignored after the list has moved
PICTURE = Path(__file__).parents[2] / "docs" / "approval-page.png"


@pytest.fixture
def page(browser: BrowserContext, serving: Serving) -> Iterator[Page]:
    """Return the page, entered by its link; whatever its console complains about fails."""
    opened = browser.new_page()
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    opened.set_default_timeout(60_000)
    opened.goto(serving.link)
    opened.wait_for_url(f"{serving.origin}/")
    opened.wait_for_selector(".live.on")
    yield opened
    opened.close()
    # Chromium calls an answer other than 200 an error; those are what some tests are about.
    assert [text for text in complaints if "Failed to load resource" not in text] == []


def card(page: Page, request_id: str) -> str:
    selector = f'.card[data-id="{request_id}"]'
    page.wait_for_selector(selector)
    page.wait_for_timeout(CALM)
    return selector


def cards(page: Page, count: int) -> None:
    """Wait until so many are shown. The page's policy lets nobody ask it by script text."""
    until = time.monotonic() + 60
    while page.locator(".card").count() != count:
        assert time.monotonic() < until, page.locator(".card").count()
        page.wait_for_timeout(10)


def test_a_request_appears_by_itself_and_says_everything(page: Page, serving: Serving) -> None:
    asked = serving.ask("/srv/imports/customers.csv", resume=True)
    for _ in range(2):
        serving.ask("/srv/imports/customers.csv")
    shown = card(page, asked.id)
    page.wait_for_selector("text=asked 3 times")
    words = page.inner_text(shown)
    for part in (
        "Filesystem read",
        "tool:notes.reader wants to read /srv/imports/customers.csv on behalf of module:notes",
        "chain: module:notes > tool:notes.reader",
        "session key: yes",
        "resumes by itself",
        "tool:notes.reader  filesystem  read  /srv/imports/customers.csv",
    ):
        assert part in words.replace("\u00a0", " "), part


def test_denying_is_the_first_button_and_what_enter_does(page: Page, serving: Serving) -> None:
    asked = serving.ask("/srv/a")
    shown = card(page, asked.id)
    assert page.inner_text(f"{shown} button >> nth=0") == "Deny"
    page.focus(shown)
    page.keyboard.press("Enter")
    page.wait_for_selector("#toast:has-text('Denied')")
    assert serving.service.get(asked.id).state == "denied"


@pytest.mark.parametrize(
    ("scope", "words"), [("session", "for the session"), ("permanent", "permanently")]
)
def test_one_click_approves_and_one_takes_it_back(
    page: Page, serving: Serving, scope: str, words: str
) -> None:
    asked = serving.ask("/srv/a")
    page.click(f"{card(page, asked.id)} [data-act={scope}]")
    page.wait_for_selector(f"#toast:has-text('Approved {words}')")
    assert serving.service.get(asked.id).scope == scope
    page.wait_for_selector(f"#standing .tag.{scope}")
    page.click("#toast-undo")
    page.wait_for_selector("#toast:has-text('Taken back')")
    page.wait_for_selector(f'.card[data-id="{asked.id}"]')
    assert serving.service.list_decisions() == []


def test_widening_shows_the_rule_before_it_is_stored(page: Page, serving: Serving) -> None:
    asked = serving.ask("https://api.example.com/v1/mail")
    shown = card(page, asked.id)
    assert page.inner_text(f"{shown} .rule").endswith("https://api.example.com/v1/mail")
    page.check(f"{shown} [data-act=widen]")
    assert page.inner_text(f"{shown} .rule").endswith("https://api.example.com")
    assert "every path of https://api.example.com" in page.inner_text(f"{shown} .opens")
    page.wait_for_timeout(CALM)
    page.click(f"{shown} [data-act=permanent]")
    page.wait_for_selector("#standing .row")
    (standing,) = serving.service.list_decisions()
    assert standing.rule.target == "https://api.example.com"


def test_a_session_approval_is_not_offered_without_a_session(page: Page, serving: Serving) -> None:
    asked = serving.ask("/srv/a", session=None)
    shown = card(page, asked.id)
    assert page.query_selector(f"{shown} [data-act=session]") is None
    assert "asked without a session" in page.inner_text(shown)


# Clicks the moment a second card is put in, which no hand could time.
CLICK_AT_ONCE = """selector => new MutationObserver(() => {
  if (document.querySelectorAll(".card").length === 2) document.querySelector(selector).click();
}).observe(document.getElementById("waiting"), { childList: true })"""


def test_clicks_are_ignored_right_after_the_list_moved(page: Page, serving: Serving) -> None:
    first = serving.ask("/srv/a")
    button = f"{card(page, first.id)} [data-act=permanent]"
    page.evaluate(CLICK_AT_ONCE, button)
    serving.ask("/srv/b")
    cards(page, 2)
    page.wait_for_timeout(CALM)
    assert serving.service.get(first.id).state == "pending"
    page.click(button)
    page.wait_for_selector("#toast")
    assert serving.service.get(first.id).state == "approved"


def test_keys_choose_and_decide(page: Page, serving: Serving) -> None:
    first, second = serving.ask("/srv/a"), serving.ask("/srv/b")
    card(page, second.id)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("p")
    page.wait_for_selector("#toast:has-text('permanently')")
    assert serving.service.get(second.id).state == "approved"
    assert serving.service.get(first.id).state == "pending"
    page.keyboard.press("u")
    page.wait_for_selector(f'.card[data-id="{second.id}"]')
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"


def test_the_filter_narrows_every_list(page: Page, serving: Serving) -> None:
    kept, gone = serving.ask("/srv/kept"), serving.ask("/srv/gone")
    card(page, gone.id)
    page.fill("#filter", "kept")
    cards(page, 1)
    assert page.query_selector(f'.card[data-id="{kept.id}"]') is not None


def test_another_operator_was_quicker(page: Page, serving: Serving) -> None:
    asked = serving.ask("/srv/a")
    shown = card(page, asked.id)
    page.route("**/api/state*", lambda route: route.abort())
    serving.service.deny(asked.id, BOB)
    button = f"{shown} [data-act=permanent]"
    with contextlib.suppress(Exception):  # it may be off already: the page knows it is behind
        page.click(button, timeout=1500)
    page.unroute("**/api/state*")
    page.wait_for_selector("#history:has-text('bob denied')")
    assert serving.service.get(asked.id).state == "denied"


def test_a_page_that_has_lost_its_server_decides_nothing(page: Page, serving: Serving) -> None:
    asked = serving.ask("/srv/a")
    shown = card(page, asked.id)
    serving.halt()
    page.wait_for_selector(".live.off")
    assert page.is_disabled(f"{shown} [data-act=permanent]")


def test_history_and_refusals_are_shown(page: Page, serving: Serving) -> None:
    asked = serving.ask("/srv/a")
    serving.service.check(serving.request("/srv/refused"))
    serving.service.approve_permanently(asked.id, ADA)
    page.wait_for_selector("#history:has-text('ada approved (permanent)')")
    page.click("#refusals-box summary")
    page.wait_for_selector("#refusals:has-text('/srv/refused')")
    page.click("#standing [data-act=revoke]")
    page.wait_for_selector("#history:has-text('revoked')")
    assert serving.service.list_decisions() == []


def test_a_running_sandbox_is_shown_with_whose_word_that_is(page: Page, serving: Serving) -> None:
    with serving.sandboxed("whisper"):
        serving.ask("/srv/a")
        row = page.wait_for_selector("#sandboxes .row:has-text('engine:whisper')")
        assert row is not None
        assert "unverified" in row.inner_text()
        assert "only says that it is a sandbox" in row.inner_text()


@pytest.mark.needs("landlock", "seccomp")
def test_a_launched_sandbox_is_shown_as_confined_with_what_it_was_refused(
    page: Page, serving: Serving
) -> None:
    with serving.launched("tool:notes.reader"):
        for _ in range(3):
            serving.service.check(serving.request("/srv/refused"))
        serving.service.journal.flush()
        serving.ask("/srv/a")
        row = page.wait_for_selector("#sandboxes .row:has-text('refused 3 times lately')")
        assert row is not None
        assert "confined" in row.inner_text()
        page.click("#refusals-box summary")
        page.wait_for_selector("#refusals:has-text('Filesystem read')")


def test_hostile_targets_are_only_text(page: Page, serving: Serving) -> None:
    for path in HOSTILE_PATHS:
        serving.ask(path)
    _store_huge_target(serving)
    cards(page, len(HOSTILE_PATHS) + 1)
    assert page.evaluate("window.owned") is None
    assert page.query_selector("main img, main script, main b b, .card img") is None
    text = page.evaluate("document.body.innerText + document.title")
    assert [char for char in RAW if char in text] == []
    assert "\\u202e" in text
    assert "\\x1b" in text
    width = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert width <= 0
    assert page.locator("text=too long to show").count() == 1


def _store_huge_target(serving: Serving) -> None:
    asked = serving.ask("/srv/huge")
    store = serving.service.store
    assert isinstance(store, SqlStore)
    with store.database.write() as transaction:
        transaction.change(
            "UPDATE approval_requests SET target = ? WHERE id = ?", (encoded(HUGE), asked.id)
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1100])
def test_it_fits_a_phone_and_a_desk_in_light_and_dark(
    page: Page, serving: Serving, tmp_path: Path, scheme: Literal["light", "dark"], width: int
) -> None:
    _fill(serving)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    cards(page, 3)
    page.wait_for_selector("#history .row")
    page.wait_for_timeout(CALM)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=str(tmp_path / f"page-{scheme}-{width}.png"))
    if (scheme, width) == ("light", 1100) and serving.keeps_pictures:
        page.set_viewport_size({"width": 820, "height": 640})
        page.screenshot(path=str(PICTURE))
    page.get_by_role("button", name="Approve for the session").first.click()
    undo = page.wait_for_selector("#toast-undo")
    assert undo is not None
    place = undo.bounding_box()
    assert place is not None
    assert place["width"] > place["height"], "its word is broken in two"


def _fill(serving: Serving) -> None:
    for path in ("/srv/exports/report.pdf", "/srv/private/keys.txt"):
        asked = serving.ask(path)
        decide = serving.service.deny if "private" in path else serving.service.approve_for_session
        decide(asked.id, ADA)
    serving.ask("/srv/imports/customers.csv", resume=True)
    serving.ask("/srv/imports/customers.csv")
    serving.ask("https://api.example.com/v1/mail")
    serving.ask("/mnt/backup/\u202egnp.elif", session=None)
