"""Each surface of the application from end to end: its code is loaded and run, and tries things."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from sdk.host import ANN, Host, rule

from democrai_osguard import Rule, current_guard, runtime, sdk
from democrai_osguard.approvals import SessionKeyRequired

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import ModuleType

ACTS = """
import importlib, os, subprocess, urllib.request

def code(error):
    return getattr(error, "code", type(error).__name__)

def attempt(act, *words):
    try:
        return globals()[act](*words)
    except (PermissionError, ImportError) as error:
        return code(error)

def read(path):
    with open(path) as file:
        return file.read()

def write(path):
    with open(path, "w") as file:
        return file.write("new") and "written"

def receive(url):
    return urllib.request.urlopen(url, timeout=30).read().decode()

def send(url):
    return urllib.request.urlopen(url, data=b"x", timeout=30).read().decode()

def native():
    return importlib.import_module("ctypes").__name__

def start(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

def main(*acts):
    return [attempt(*act) for act in acts]
"""
FILES, NETWORK = "sandbox_filesystem_denied", "sandbox_network_denied"
MODULE, PROCESS = "sandbox_module_denied", "sandbox_subprocess_denied"


class Web(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


def web() -> str:
    """Serve on loopback until this test's own fork ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def free() -> Callable[..., list[Any]]:
    """Return the same acts as the application's own code."""
    names: dict[str, Any] = {}
    exec(compile(ACTS, "the application", "exec"), names)  # noqa: S102 - the test's own text
    main: Callable[..., list[Any]] = names["main"]
    return main


def source(module: ModuleType) -> str:
    """Return the text of a module of the standard library, which every surface but MCP may read."""
    with open(str(module.__file__), encoding="utf-8") as file:
        return file.read()


def acting(host: Host, name: str = "notes") -> Callable[..., list[Any]]:
    """Return the acts of an extension; without a guard they work."""
    acts = (("read", str(host.outside / "file")), ("receive", web()), ("start", "echo", "1"))
    assert free()(*acts) == ["secret", "ok", "1"]
    return host.load(ACTS, name)


@pytest.mark.parametrize("surface", ["render", "action", "command"])
def test_module_runtime(host: Host, surface: str) -> None:
    main, url = acting(host), web()
    (host.folder / "data").mkdir()
    manifest = {
        "access": [rule("filesystem", "read", host.outside), rule("network", "receive", url)],
        "allowed_imports": ["ctypes"],
    }
    own = host.folder / "notes" / "own"
    own.write_text(surface)
    with runtime.module_context("notes", manifest, folder=host.folder / "notes", user_id="7",
                                organization_id="3", session_key="s-1") as info:  # fmt: skip
        found = main(
            ("read", os.__file__), ("write", str(host.folder / "data/x")), ("read", str(own)),
            ("read", str(host.outside / "file")), ("receive", f"{url}/a"), ("native",),
            ("write", str(host.outside / "file")), ("write", str(own)), ("send", url),
            ("read", "/etc/passwd"), ("start", "true"),
        )  # fmt: skip
    assert info is not None
    assert (info.user_id, info.organization_id, info.session_key) == ("7", "3", "s-1")
    assert found[:6] == [source(os), "written", surface, "secret", "ok", "ctypes"]
    assert found[6:] == [FILES, FILES, NETWORK, FILES, PROCESS]
    with runtime.module_context("notes", folder=host.folder / "notes"):
        assert main(("native",)) == [MODULE]


@pytest.mark.parametrize("session", ["s-1", None])
def test_module_tasks(host: Host, session: str | None) -> None:
    runtime.use_approvals(host.service)
    main, url = acting(host), web()
    manifest = {"access": [rule("filesystem", "read", host.outside), rule("network", "send", url)]}
    who: dict[str, Any] = {"user_id": "7", "organization_id": "3", "session_key": session}
    with runtime.task_context("notes", manifest, **who) as info:
        assert info is not None
        assert (info.subject_kind, info.user_id, info.session_key) == ("task", "7", session)
        found = main(("read", str(host.outside / "file")), ("send", url), ("receive", url),
                     ("write", str(host.outside / "file")))  # fmt: skip
    assert found == ["secret", "ok", NETWORK, FILES]
    # What it asks for is known as its module's, and approved for a session only if it has one.
    (request,) = host.service.list_requests()
    assert str(request.subject) == "module:notes"
    origin = request.origin
    assert (origin.user_id, origin.organization_id, origin.session_key) == ("7", "3", session)
    if session is None:
        with pytest.raises(SessionKeyRequired):
            host.service.approve_for_session(request.id, ANN)
        host.service.approve_permanently(request.id, ANN)
    else:
        host.service.approve_for_session(request.id, ANN)
    with runtime.task_context("notes", manifest, **who):
        assert main(("receive", url)) == ["ok"]
    host.service.deny(request.id, ANN, overrule=True)
    with runtime.task_context("notes", manifest, **who):
        assert main(("receive", url)) == [NETWORK]


@pytest.mark.needs("landlock", "seccomp")
def test_sdk_task_helpers(host: Host) -> None:
    main = host.load("""
        import asyncio
        from democrai_osguard import current_guard, sdk

        def seen():
            info = current_guard()
            return f"{info.subject} {info.user_id} {info.session_key}"

        async def work():
            in_a_thread = await sdk.tasks.run_blocking(seen)
            process = await sdk.tasks.run_subprocess("printenv", "DEMOCRAI_NETWORK_SUBJECT",
                "DEMOCRAI_USER_ID", "DEMOCRAI_SESSION_KEY", stdout=sdk.tasks.PIPE)
            return in_a_thread, (await process.communicate())[0].decode().split()

        def main():
            return asyncio.run(work())
    """)
    with host.guard(access=(rule("system_dependency", "execute", "printenv"),)):
        assert main() == ("module:notes 7 s-1", ["notes", "7", "s-1"])


def phases(host: Host, url: str) -> dict[str, object]:
    python = os.path.realpath(sys.executable)
    return {
        "runtime": {"access": [rule("filesystem", "read", host.outside),
                               rule("network", "send", url)],
                    "allowed_imports": ["ctypes"]},
        "install": {"access": [rule("network", "receive", url),
                               rule("filesystem", "execute", python)]},
    }  # fmt: skip


ENGINES = [("engine", runtime.engine_context), ("extractor", runtime.extractor_context)]


@pytest.mark.parametrize(("kind", "context"), ENGINES)
def test_engine_and_extractor_runtime(
    host: Host, kind: str, context: Callable[..., AbstractContextManager[Any]]
) -> None:
    main, url = acting(host, "whisper"), web()
    acts = (("read", str(host.outside / "file")), ("native",), ("send", url), ("read", os.__file__),
            ("receive", url), ("start", sys.executable, "-c", "print(1)"))  # fmt: skip
    with context("whisper", phases(host, url)) as info:
        assert str(info.subject) == f"{kind}:whisper"
        found = main(*acts)
    assert found == ["secret", "ctypes", "ok", source(os), NETWORK, PROCESS]


def test_engine_runtime_reaches_the_configured_urls(host: Host) -> None:
    main, url, other = acting(host, "llm"), web(), web()
    manifest = {"runtime": {"allowed_config_urls": ["base_url"]}}
    with runtime.engine_context("llm", manifest, config={"base_url": f"{url}/v1", "more": other}):
        found = main(("receive", f"{url}/v1/models"), ("send", f"{url}/v1/chat"),
                     ("receive", f"{url}/v10"), ("receive", other))  # fmt: skip
    assert found == ["ok", "ok", NETWORK, NETWORK]


@pytest.mark.parametrize(("kind", "context"), ENGINES)
def test_engine_and_extractor_install(
    host: Host, kind: str, context: Callable[..., AbstractContextManager[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    main, url, index = acting(host, "whisper"), web(), web()
    monkeypatch.setenv("PIP_INDEX_URL", f"{index}/simple")
    acts = (
        ("read", str(host.outside / "file")),
        ("native",),
        ("receive", url),
        ("receive", f"{index}/simple/x"),
        ("start", sys.executable, "-c", "print(1)"),
        ("send", url),
    )
    with context("whisper", phases(host, url), phase="install") as info:
        assert str(info.subject) == f"{kind}:whisper"
        assert main(*acts) == [FILES, MODULE, "ok", "ok", "1", NETWORK]


@pytest.mark.parametrize(("kind", "context"), ENGINES)
def test_an_install_phase_starts_the_interpreter_and_nothing_else_undeclared(
    host: Host, kind: str, context: Callable[..., AbstractContextManager[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    main = acting(host, "whisper")
    pip = ("start", sys.executable, "-m", "pip", "--version")
    programs = (("start", "true"), ("start", "/bin/sh", "-c", "echo 1"), ("start", sys.executable))
    with context("whisper", {"install": {"access": []}}, phase="install") as info:
        assert info.subject_kind == kind
        assert main(pip)[0].startswith("pip ")
        assert main(*programs[:2]) == ["sandbox_filesystem_execute_denied"] * 2
        done = sdk.tasks.run_subprocess_sync(sys.executable, "-m", "pip", "--version")
        assert (done.returncode, done.stdout[:4]) == (0, b"pip "), done.stderr
    with context("whisper", {"install": {"access": []}, "runtime": {"access": []}}):
        assert main(pip, *programs) == [PROCESS] * 4
    # What guarded code says of the interpreter is not what an install phase starts.
    monkeypatch.setattr(sys, "executable", "/bin/sh")
    with context("whisper", {"install": {"access": []}}, phase="install"):
        assert main(programs[1]) == ["sandbox_filesystem_execute_denied"]


def test_mcp_runtime(host: Host) -> None:
    runtime.use_approvals(host.service)
    main, url, other = acting(host), web(), web()
    with pytest.raises(PermissionError):
        runtime.contact_mcp("search", f"{url}/mcp")
    (request,) = host.service.list_requests()
    host.service.approve_permanently(request.id, ANN)
    around = (rule("filesystem", "read", "/"), rule("network", "receive", other))
    with host.guard(access=around), runtime.contact_mcp("search", f"{url}/mcp"):
        found = main(("send", f"{url}/mcp"), ("send", url), ("receive", other),
                     ("read", str(host.outside / "file")), ("start", "true"),
                     ("read", os.__file__))  # fmt: skip
    assert found == ["ok", NETWORK, NETWORK, FILES, PROCESS, FILES]
    # With nothing around it there are no runtime paths either, which other surfaces have.
    kept = str(host.folder / "temp/kept")
    with host.guard():
        assert main(("read", os.__file__), ("write", kept)) == [source(os), "written"]
    with runtime.contact_mcp("search", f"{url}/mcp"):
        assert main(("read", os.__file__), ("write", kept)) == [FILES, FILES]


def test_the_chain_of_tools_agents_and_pipelines(host: Host) -> None:
    runtime.use_approvals(host.service)
    main, url = acting(host), web()

    async def pipeline() -> list[Any]:
        with runtime.pipeline_context("documents"), runtime.agent_context("reader"):
            await asyncio.sleep(0)
            with runtime.tool_context("fetch") as info:
                assert info is not None
                chains.append([str(each) for each in info.subject_chain])
                return await sdk.tasks.run_blocking(main, ("receive", url))

    chains: list[list[str]] = []
    with host.guard():
        assert asyncio.run(pipeline()) == [NETWORK]
    expected = ["module:notes", "pipeline:documents", "agent:reader", "tool:fetch"]
    assert chains == [expected]
    (request,) = host.service.list_requests()
    assert [str(each) for each in request.chain] == expected
    assert str(request.subject) == "tool:fetch"
    assert request.origin.session_key == "s-1"
    # The approval is the tool's, and not its module's.
    host.service.approve_for_session(request.id, ANN)
    with host.guard():
        assert asyncio.run(pipeline()) == ["ok"]
        assert main(("receive", url)) == [NETWORK]


def test_an_asset_s_declaration_narrows_and_does_not_replace(host: Host) -> None:
    main = acting(host)
    (host.outside / "in").mkdir()
    (host.outside / "in/file").write_text("narrow")
    acts = (("read", str(host.outside / "file")), ("read", str(host.outside / "in/file")),
            ("read", "/etc/passwd"))  # fmt: skip
    own = [Rule.of("filesystem", "read", path)
           for path in (str(host.outside / "in"), "/etc")]  # fmt: skip
    with host.guard(access=(rule("filesystem", "read", host.outside),)):
        assert main(*acts) == ["secret", "narrow", FILES]
        with runtime.tool_context("reader", own):
            assert main(*acts) == [FILES, "narrow", FILES]
        assert main(*acts) == ["secret", "narrow", FILES]


def test_media_and_external_urls(host: Host) -> None:
    main, url, other = free(), web(), web()
    assert main(("receive", other)) == ["ok"]
    with runtime.media_context("proxy", f"{url}/a.mp4") as info:
        assert info is not None
        found = main(("receive", f"{url}/a.mp4"), ("receive", f"{url}/b.mp4"), ("receive", other),
                     ("send", f"{url}/a.mp4"))  # fmt: skip
        # It is about the network alone.
        assert main(("read", str(host.outside / "file"))) == ["secret"]
    assert found == ["ok", NETWORK, NETWORK, NETWORK]
    # It is a service of the runtime: a module does not open such a policy for itself.
    own = host.load("""
        from democrai_osguard import runtime

        def main(url):
            try:
                with runtime.media_context(url):
                    return "opened"
            except PermissionError as error:
                return error.code
    """)
    with host.guard():
        assert own(other) == "sandbox_guard_denied"


def test_what_is_neither_declared_nor_approved_stays_blocked(host: Host) -> None:
    runtime.use_approvals(host.service)
    main, url = acting(host), web()
    with host.guard():
        assert main(("receive", url), ("read", str(host.outside / "file"))) == [NETWORK, FILES]
    (request,) = host.service.list_requests()
    host.service.approve_for_session(request.id, ANN)
    with host.guard():
        assert main(("receive", url), ("send", url)) == ["ok", NETWORK]
    with host.guard(session_key="s-2"):
        assert main(("receive", url)) == [NETWORK]
    assert current_guard() is None
