"""Who gets in, from where, and what never leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from web.serving import SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from web.serving import Serving


@pytest.fixture
def client(serving: Serving) -> Iterator[httpx.Client]:
    """Return a client that knows no link yet."""
    with httpx.Client(base_url=serving.origin, trust_env=False) as made:
        yield made


def enter(client: httpx.Client, serving: Serving) -> dict[str, str]:
    """Open the link; return the headers that calls need."""
    page = client.get(serving.link)
    assert page.status_code == 200
    token = page.text.partition('name="visit-token" content="')[2].partition('"')[0]
    return {"X-Osguard-Token": token, "Origin": serving.origin}


def resource_of(serving: Serving, request_id: str) -> object:
    return serving.service.get(request_id).document()["resource"]


def test_without_a_link_nothing_is_shown(client: httpx.Client, serving: Serving) -> None:
    serving.ask("/srv/secret-name")
    for path in ("/", "/api/state", "/?token=", "/?token=guess"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert "secret-name" not in answer.text
    assert client.post("/api/decide", json={}).status_code in {401, 403}


def test_a_link_works_once_and_another_is_printed(client: httpx.Client, serving: Serving) -> None:
    enter(client, serving)
    assert httpx.get(serving.link, trust_env=False).status_code == 401
    second = serving.next_link()
    assert second != serving.link
    assert httpx.get(second, trust_env=False).status_code == 200


def test_the_cookie_is_strict_and_not_enough(client: httpx.Client, serving: Serving) -> None:
    page = client.get(serving.link)
    cookie = page.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.get("/").status_code == 200
    assert client.get("/api/state").status_code == 401
    assert client.get("/api/state", headers={"X-Osguard-Token": "guess"}).status_code == 401


def test_the_token_is_not_enough_either(client: httpx.Client, serving: Serving) -> None:
    headers = enter(client, serving)
    bare = httpx.get(f"{serving.origin}/api/state", headers=headers, trust_env=False)
    assert bare.status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil:1"])
def test_another_host_name_is_turned_away(
    client: httpx.Client, serving: Serving, host: str
) -> None:
    headers = enter(client, serving) | {"Host": host}
    for path in ("/", "/api/state", "/static/page.js"):
        assert client.get(path, headers=headers).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", None])
def test_a_call_from_another_page_is_turned_away(
    client: httpx.Client, serving: Serving, origin: str | None
) -> None:
    headers = enter(client, serving)
    asked = serving.ask("/srv/a")
    del headers["Origin"]
    if origin is not None:
        headers["Origin"] = origin
    body = {"request": asked.id, "scope": "permanent", "resource": resource_of(serving, asked.id)}
    assert client.post("/api/decide", json=body, headers=headers).status_code == 403
    assert serving.service.get(asked.id).state == "pending"


def test_a_form_cannot_decide(client: httpx.Client, serving: Serving) -> None:
    headers = enter(client, serving)
    answer = client.post("/api/decide", data={"request": "x"}, headers=headers)
    assert answer.status_code == 415
    crossed = headers | {"Sec-Fetch-Site": "cross-site"}
    assert client.post("/api/decide", json={}, headers=crossed).status_code == 403


def test_reading_calls_change_nothing(client: httpx.Client, serving: Serving) -> None:
    headers = enter(client, serving)
    for path in ("/api/decide", "/api/undo", "/api/revoke", "/api/leave"):
        assert client.get(path, headers=headers).status_code == 405


def test_every_answer_has_the_strict_headers(client: httpx.Client, serving: Serving) -> None:
    headers = enter(client, serving)
    for path in ("/", "/static/page.js", "/api/state", "/nowhere", "/static/../page.py"):
        answer = client.get(path, headers=headers)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_deciding_stores_exactly_what_was_shown(client: httpx.Client, serving: Serving) -> None:
    headers = enter(client, serving)
    asked = serving.ask("/srv/data/a.csv")
    body = {"request": asked.id, "scope": "permanent", "widen": True,
            "resource": resource_of(serving, asked.id)}  # fmt: skip
    assert client.post("/api/decide", json=body, headers=headers).status_code == 409
    assert serving.service.get(asked.id).state == "pending"
    del body["widen"]
    answer = client.post("/api/decide", json=body, headers=headers).json()
    assert answer["applied"]
    (standing,) = serving.service.list_decisions()
    assert standing.rule.target == "/srv/data/a.csv"


def test_what_goes_wrong_is_said_with_its_code(client: httpx.Client, serving: Serving) -> None:
    headers = enter(client, serving)
    asked = serving.ask("/srv/a", session=None)
    body = {"request": asked.id, "scope": "session", "resource": resource_of(serving, asked.id)}
    answer = client.post("/api/decide", json=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (
        400,
        "external_access_session_key_required",
    )
    assert client.post("/api/undo", json={"decision": 99}, headers=headers).status_code == 404
    body = {"request": "none", "scope": "denied", "resource": {}}
    assert client.post("/api/decide", json=body, headers=headers).status_code == 404
    for raw in (b"[1]", b"{", b"\xff", b"[" * 200_000):
        sent = headers | {"Content-Type": "application/json"}
        assert client.post("/api/decide", content=raw, headers=sent).status_code in {400, 413}


def test_secrets_are_never_sent(client: httpx.Client, serving: Serving) -> None:
    headers = enter(client, serving)
    serving.ask("/srv/\udcff\u202e<b>", session="sess-secret", resume=True)
    answer = client.get("/api/state", headers=headers)
    assert answer.status_code == 200
    assert "notes.resume" in answer.text
    assert SECRET not in answer.text
    assert "sess-secret" not in answer.text


def test_leaving_ends_the_visit(client: httpx.Client, serving: Serving) -> None:
    headers = enter(client, serving)
    assert client.post("/api/leave", json={}, headers=headers).status_code == 200
    assert client.get("/api/state", headers=headers).status_code == 401
