"""MCP with the real server and client: checked before contact, and nothing else inside."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcp
import pytest
import uvicorn
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from sdk.host import ANN, Host, rule
from sdk.mcp_server import server

from democrai_osguard import runtime

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

SERVER = str(Path(__file__).with_name("mcp_server.py"))


class Contacts:
    """A server on loopback that counts the connections made to it."""

    def __init__(self) -> None:
        self.count = 0
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        logging.getLogger("mcp").setLevel(logging.ERROR)
        served = server.streamable_http_app()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            self.count += scope["type"] == "http"
            await served(scope, receive, send)

        running = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        # It ends with the fork that this test runs in.
        threading.Thread(target=running.run, args=([listener],), daemon=True).start()
        while not running.started:
            time.sleep(0.01)
        # The control; and the client's own imports, for which there is no path inside.
        assert asyncio.run(talk(self.url, create_mcp_http_client())) == ALL_OF_IT
        self.count = 0


async def talk(url: str, http: Any) -> tuple[list[str], str]:  # noqa: ANN401 - httpx2's client
    transport = streamable_http_client(url, http_client=http)
    async with mcp.Client(transport) as client:
        listed = await client.list_tools()
        called = await client.call_tool("add", {"a": 2, "b": 3})
        return [tool.name for tool in listed.tools], called.content[0].text  # type: ignore[union-attr]


ALL_OF_IT = (["add", "read", "connect"], "5")


def test_the_endpoint_is_checked_before_the_first_contact(host: Host) -> None:
    runtime.use_approvals(host.service)
    contacts = Contacts()
    with pytest.raises(PermissionError) as caught:
        runtime.contact_mcp("helper", contacts.url, user_id="7", session_key="s-1")
    where = f"http://localhost:{contacts.port}/mcp"
    assert str(caught.value) == f"sandbox_network_denied:helper:connect:{where}"
    assert contacts.count == 0
    (request,) = host.service.list_requests()
    assert str(request.subject) == "mcp:helper"
    assert (request.rule.operation, request.rule.target) == ("connect", where)
    assert request.origin.user_id == "7"
    host.service.approve_for_session(request.id, ANN)
    http = create_mcp_http_client()
    with runtime.contact_mcp("helper", contacts.url, user_id="7", session_key="s-1"):
        assert asyncio.run(talk(contacts.url, http)) == ALL_OF_IT
    assert contacts.count > 0
    # Another session was not approved, and a denial closes this one.
    with pytest.raises(PermissionError):
        runtime.contact_mcp("helper", contacts.url, session_key="s-2")
    host.service.deny(request.id, ANN, overrule=True)
    with pytest.raises(PermissionError):
        runtime.contact_mcp("helper", contacts.url, session_key="s-1")


def test_what_the_subject_around_declares_needs_no_approval(host: Host) -> None:
    runtime.use_approvals(host.service)
    contacts = Contacts()
    http = create_mcp_http_client()
    declared = (rule("network", "connect", contacts.url),)
    with host.guard(access=declared), runtime.contact_mcp("helper", contacts.url) as info:
        assert info is not None
        assert [str(each) for each in info.subject_chain] == ["module:notes", "mcp:helper"]
        assert asyncio.run(talk(contacts.url, http)) == ALL_OF_IT
    with host.guard(), pytest.raises(PermissionError):
        runtime.contact_mcp("helper", contacts.url)


def test_inside_there_is_the_endpoint_and_nothing_else(host: Host) -> None:
    contacts, others = Contacts(), Contacts()
    http = create_mcp_http_client()
    other = create_mcp_http_client()
    refused: list[str] = []

    def attempt(act: Any) -> None:  # noqa: ANN401 - any call
        try:
            act()
            refused.append("worked")
        except PermissionError as error:
            refused.append(str(getattr(error, "code", "")))

    everything = (
        rule("filesystem", "read", "/"), rule("network", "connect", f"127.0.0.1:{others.port}"),
    )  # fmt: skip
    with host.guard(access=everything), runtime.mcp_context("helper", contacts.url):
        assert asyncio.run(talk(contacts.url, http)) == ALL_OF_IT
        with pytest.raises(BaseExceptionGroup):
            asyncio.run(talk(others.url, other))
        with pytest.raises(BaseExceptionGroup):
            asyncio.run(talk(contacts.url.replace("/mcp", "/other"), other))
        attempt(lambda: open(host.outside / "file"))  # noqa: SIM115 - it is refused
        attempt(lambda: os.listdir(os.path.dirname(os.__file__)))
        attempt(lambda: subprocess.run(["true"], check=True))
        attempt(lambda: socket.create_connection(("127.0.0.1", others.port), 10))
    assert others.count == 0
    assert refused == [
        "sandbox_filesystem_denied", "sandbox_filesystem_denied",
        "sandbox_subprocess_denied", "sandbox_network_denied",
    ]  # fmt: skip


def test_an_endpoint_that_is_none_is_an_error(host: Host) -> None:
    runtime.use_approvals(host.service)
    for endpoint in ("", "https://u:p@x.example.com/mcp", "http://x.example.com\\@y/"):
        with pytest.raises(ValueError, match=r"network_target_missing|invalid_target"):
            runtime.contact_mcp("helper", endpoint)
    assert host.service.list_requests() == []


def test_without_anybody_to_ask_only_a_declared_server_is_contacted(host: Host) -> None:
    assert host.folder.is_dir()
    runtime.use_approvals(None)  # else the store in the operator's folder would answer
    contacts = Contacts()
    with pytest.raises(PermissionError, match="sandbox_network_denied:helper:connect") as caught:
        runtime.contact_mcp("helper", contacts.url)
    assert "runtime.use_approvals" in getattr(caught.value, "hint", "")
    assert contacts.count == 0
    declared = (rule("network", "connect", contacts.url),)
    http = create_mcp_http_client()
    with host.guard(access=declared), runtime.contact_mcp("helper", contacts.url):
        assert asyncio.run(talk(contacts.url, http)) == ALL_OF_IT


@pytest.mark.needs("landlock", "seccomp")
def test_a_server_on_standard_streams_is_held_by_the_launcher(host: Host) -> None:
    (host.folder / "own").mkdir()
    (host.folder / "own/file").write_text("own")
    libraries = [path for path in (sys.prefix, sys.base_prefix) if os.path.isdir(path)]
    reads = [word for path in (*libraries, SERVER, str(host.folder / "own"))
             for word in ("--read", path)]  # fmt: skip
    launcher = ["-I", "-m", "democrai_osguard_launcher", "--subject", "mcp:helper", *reads, "--"]
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    async def both(*front: str) -> list[str]:
        words = [*front, sys.executable, SERVER, "stdio"]
        transport = mcp.stdio_client(mcp.StdioServerParameters(command=words[0], args=words[1:]))
        async with mcp.Client(transport) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            assert tools == ALL_OF_IT[0]
            calls: list[tuple[str, dict[str, Any]]] = [
                ("add", {"a": 2, "b": 3}),
                ("read", {"path": str(host.folder / "own/file")}),
                ("read", {"path": str(host.outside / "file")}),
                ("connect", {"port": port}),
            ]
            results = [await client.call_tool(name, words) for name, words in calls]
            return [result.content[0].text for result in results]  # type: ignore[union-attr]

    assert asyncio.run(both()) == ["5", "own", "secret", "connected"]
    held = asyncio.run(both(sys.executable, *launcher))
    assert held == ["5", "own", "PermissionError", "PermissionError"]
