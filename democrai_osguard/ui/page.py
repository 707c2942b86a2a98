"""The approval page as a web application.

Every answer carries the same strict headers. Calls need a known Host, the cookie and the token;
those that change something also need our own Origin. What goes wrong is said in one line.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from democrai_osguard.approvals.errors import AdminRequired
from democrai_osguard.approvals.records import resource
from democrai_osguard.approvals.widening import widened
from democrai_osguard.errors import OsGuardError
from democrai_osguard.ui import feed
from democrai_osguard.ui.doorkeeper import Doorkeeper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from democrai_osguard.approvals.records import Operator, Outcome
    from democrai_osguard.approvals.service import ApprovalService
    from democrai_osguard.ui.gate import Gate

    Endpoint = Callable[[Request], Awaitable[Response]]

COOKIE = "osguard_visit"
TOKEN_HEADER = "X-Osguard-Token"  # noqa: S105 - the name of a header
_STATIC = os.path.join(os.path.dirname(__file__), "static")
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_BODY_LIMIT = 256 * 1024
_WAIT_SECONDS = 1.0
_WAITS = 20


class Json(JSONResponse):
    """JSON in ASCII: a target may hold bytes that are no text, which UTF-8 cannot carry."""

    def render(self, content: object) -> bytes:
        """Return the body."""
        return json.dumps(content).encode("ascii")


class Page:
    """The endpoints."""

    def __init__(
        self,
        service: ApprovalService,
        operator: Operator,
        gate: Gate,
        link_used: Callable[[], object] = lambda: None,
    ) -> None:
        self._service = service
        self._operator = operator
        self._gate = gate
        self._link_used = link_used
        self._files = {name: _file(name) for name in sorted(os.listdir(_STATIC))}

    def application(self) -> ASGIApp:
        """Return the application."""
        routes = [
            Route("/", self.start),
            Route("/static/{name}", self.static),
            Route("/api/state", self._guarded(self.state)),
            Route("/api/decide", self._guarded(self.decide), methods=["POST"]),
            Route("/api/undo", self._guarded(self.undo), methods=["POST"]),
            Route("/api/revoke", self._guarded(self.revoke), methods=["POST"]),
            Route("/api/leave", self._guarded(self.leave), methods=["POST"]),
        ]
        handlers = {HTTPException: _said, OsGuardError: _failed}
        return Doorkeeper(Starlette(routes=routes, exception_handlers=handlers), self._gate)

    async def start(self, request: Request) -> Response:
        """Serve the page to those who have entered, and let in whoever brings a fresh link."""
        token = request.query_params.get("token")
        if token is not None:
            return self._enter(request, token)
        if not self._gate.knows(request.cookies.get(COOKIE)):
            return HTMLResponse(self._files["closed.html"][0], status_code=401)
        return HTMLResponse(self._files["page.html"][0])

    async def static(self, request: Request) -> Response:
        """Serve a script or a style sheet."""
        content, kind = self._files.get(request.path_params["name"], (b"", ""))
        if not kind:
            raise HTTPException(404, "no such file")
        return Response(content, media_type=kind)

    async def state(self, request: Request) -> Response:
        """Return what the page shows, as soon as it is newer than what the page has."""
        known = _number(request.query_params.get("after", "-1"))
        revision = await self._wait(request, known)
        shown = await run_in_threadpool(feed.document, self._service, self._operator.name, revision)
        return Json(shown)

    async def decide(self, request: Request) -> Response:
        """Decide a request, if the rule is the one that the page showed."""
        body = await _body(request)
        outcome = await run_in_threadpool(self._decide, body)
        return Json(_outcome(outcome))

    async def undo(self, request: Request) -> Response:
        """Take a decision back."""
        number = _number((await _body(request)).get("decision"))
        outcome = await run_in_threadpool(self._service.undo, number, self._operator)
        return Json(_outcome(outcome))

    async def revoke(self, request: Request) -> Response:
        """End a decision that stands."""
        number = _number((await _body(request)).get("decision"))
        entry = await run_in_threadpool(self._service.revoke, number, self._operator)
        return Json({"applied": True, "decision": entry.id})

    async def leave(self, request: Request) -> Response:
        """End the visit."""
        self._gate.leave(request.cookies.get(COOKIE))
        response = Json({"applied": True})
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        async def guarded(request: Request) -> Response:
            if request.method == "POST":
                _check_post(request, self._gate)
            cookie, token = request.cookies.get(COOKIE), request.headers.get(TOKEN_HEADER)
            if not self._gate.admits(cookie, token):
                raise HTTPException(401, "open the link that democrai-osguard serve printed")
            return await endpoint(request)

        return guarded

    def _enter(self, request: Request, token: str) -> Response:
        visit = self._gate.enter(token)
        if visit is None:
            return HTMLResponse(self._files["closed.html"][0], status_code=401)
        self._link_used()
        # The token stands in the page once; its script moves it to where only it can read it.
        page = self._files["enter.html"][0].replace(b"{token}", visit.token.encode("ascii"))
        response = HTMLResponse(page)
        secure = f"https://{request.headers['host'].lower()}" in self._gate.origins
        response.set_cookie(
            COOKIE, visit.cookie, path="/", httponly=True, samesite="strict", secure=secure
        )
        return response

    async def _wait(self, request: Request, known: int) -> int:
        for _ in range(_WAITS):
            revision = await run_in_threadpool(self._service.wait, known, _WAIT_SECONDS)
            if revision != known or await request.is_disconnected():
                break
        return revision

    def _decide(self, body: dict[str, object]) -> Outcome:
        request_id, scope = str(body.get("request")), str(body.get("scope"))
        widen = body.get("widen") is True
        asked = self._service.get(request_id).rule
        rule = widened(asked).rule if widen else asked
        if body.get("resource") != resource(rule):
            raise HTTPException(409, "this is not the rule that the page showed")
        if scope == "once":
            return self._service.approve_once(request_id, self._operator)
        return self._service.decide(request_id, scope, self._operator, widen=widen)


def _check_post(request: Request, gate: Gate) -> None:
    if not gate.is_origin(request.headers.get("origin")):
        raise HTTPException(403, "this call comes from another page")
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise HTTPException(403, "this call comes from another site")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "a call is JSON")


async def _body(request: Request) -> dict[str, object]:
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > _BODY_LIMIT:
            raise HTTPException(413, f"a call has at most {_BODY_LIMIT} bytes")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "a call is JSON") from error
    if not isinstance(body, dict):
        raise HTTPException(400, "a call is a JSON object")
    return body


def _number(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(str(value)[:20])
    except ValueError as error:
        raise HTTPException(400, "not a number") from error


def _outcome(outcome: Outcome) -> dict[str, object]:
    decision = outcome.decision
    return {
        "applied": outcome.applied,
        "agrees": outcome.agrees,
        "words": outcome.words,
        "decision": None if decision is None else decision.id,
        "settled": list(outcome.settled),
    }


def _file(name: str) -> tuple[bytes, str]:
    with open(os.path.join(_STATIC, name), "rb") as file:
        return file.read(), _TYPES.get(os.path.splitext(name)[1], "")


async def _said(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = error.detail if isinstance(error, HTTPException) else "failed"
    return Json({"message": words}, status_code=status)


async def _failed(_: Request, error: Exception) -> Response:
    statuses = ((AdminRequired, 403), (LookupError, 404), (ValueError, 400))
    status = next((code for kind, code in statuses if isinstance(error, kind)), 503)
    code = getattr(error, "code", "osguard_error")
    return Json({"code": code, "message": str(error)}, status_code=status)
