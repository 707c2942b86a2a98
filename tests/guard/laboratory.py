"""Runs the corpus: each technique in a process of its own, guarded and free.

Called as `python laboratory.py FOLDER [NAME …]`; prints one JSON line for each run. The processes
are forked from one that has everything loaded, so that a hundred techniques take seconds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import importlib.util
import json
import os
import re
import shutil
import socket
import sys
import tarfile
import threading
import zipfile
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from guard.corpus_acts import ACT_TECHNIQUES
from guard.corpus_doors import DOOR_TECHNIQUES
from guard.corpus_files import FILE_TECHNIQUES
from guard.corpus_frames import FRAME_TECHNIQUES
from guard.corpus_guards import GUARD_TECHNIQUES
from guard.corpus_inside import INSIDE_TECHNIQUES
from guard.corpus_known import KNOWN_TECHNIQUES
from guard.corpus_loops import LOOP_TECHNIQUES
from guard.corpus_programs import PROGRAM_TECHNIQUES
from guard.corpus_types import TYPE_TECHNIQUES

from democrai_osguard import runtime
from democrai_osguard.access import Rule
from democrai_osguard.guard import install, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import CodeType, ModuleType

    from guard.technique import Technique

    Confine = Callable[[dict[str, Any], int], object]  # the names, a descriptor to keep

TECHNIQUES = (
    *FILE_TECHNIQUES,
    *ACT_TECHNIQUES,
    *INSIDE_TECHNIQUES,
    *FRAME_TECHNIQUES,
    *GUARD_TECHNIQUES,
    *DOOR_TECHNIQUES,
    *LOOP_TECHNIQUES,
    *PROGRAM_TECHNIQUES,
    *TYPE_TECHNIQUES,
    *KNOWN_TECHNIQUES,
)
_EXECUTED = 77  # the exit code of a program that replaced this one
_SECONDS = 120
_HOSTS = {"OUTER", "SIGNAL", "FUTURE"}  # for which the host has a loop of its own


_LIBRARY = """
def call(function, *args, **kwargs):
    return function(*args, **kwargs)
def read(path):
    with open(path) as file:
        return file.read()
collected = []
def collect(path):
    collected.append(read(path))
def collect_for(path, *_):
    collect(path)
def call_for(function, value, *_):
    return function(value)
def do_for(functions, *_):
    for function in functions:
        function()
async def collect_after(waiting, path):
    await waiting
    collect(path)
def within(context, function):
    with context:
        return function()
"""
_FRAMEWORK = """
from democrai_osguard.guard import process_guard_context
kept = process_guard_context("engine", "engine", allowed_paths=["/"])
def inside(folder, function):
    with process_guard_context("engine", "engine", allowed_paths=[folder]):
        return function()
"""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


def build(folder: Path) -> dict[str, Any]:
    """Lay out what the techniques look for, and return their names."""
    inside, outside, readable = folder / "inside", folder / "outside", folder / "readable"
    for place in (folder / "temp", readable, *(inside / name for name in ("bin", "deep"))):
        place.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "tree"):
        (outside / name).mkdir(parents=True, exist_ok=True)
    for name in ("true", "env"):
        shutil.copy("/bin/false", outside / "bin" / name)
    (readable / "text").write_text("mine\n")
    for name, text in (("secret", "secret\n"), ("victim", "v"), ("movable", "m")):
        (outside / name).write_text(text)
    (outside / "a.py").write_text("x = 1\n")
    (outside / "a_module.py").write_text("x = 1\n")
    (outside / "a.ini").write_text("[a]\nb = c\n")
    (outside / "cert.pem").write_text(_certificate())
    (outside / "tree" / "leaf").write_text("")
    (outside / "alias").symlink_to(outside / "secret")
    (inside / "ok").write_text("fine\n")
    (inside / "foreign.so").write_bytes(_library("_queue").read_bytes())
    (inside / "link").symlink_to(outside / "secret")
    (inside / "folder").symlink_to(outside)
    (inside / "victim-link").symlink_to(outside / "victim")
    _archives(inside, outside)
    names = {
        "IN": inside, "OUT": outside, "SECRET": outside / "secret", "READABLE": readable,
        "BIN": inside / "bin",
    }  # fmt: skip
    return {name: str(path) for name, path in names.items()}


def _archives(inside: Path, outside: Path) -> None:
    with zipfile.ZipFile(outside / "a.zip", "w") as archive:
        archive.writestr("x", "1")
    with tarfile.open(outside / "a.tar", "w") as tar:
        tar.add(outside / "a.py", "x")
    with tarfile.open(inside / "evil.tar", "w") as tar:
        tar.add(outside / "a.py", "../../outside/planted")
    import sqlite3  # noqa: PLC0415 - only here

    for place in (outside / "a.db", inside / "mine.db"):
        connection = sqlite3.connect(place)
        connection.execute("create table t (x)")
        connection.commit()
        connection.close()


def _library(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    return Path(str(spec.origin))


def resolvable() -> str:
    """Return a name, beside localhost, that this machine knows without asking anybody."""
    lines = (line.partition("#")[0].split() for line in Path("/etc/hosts").read_text().splitlines())
    names = [name for words in lines for name in words[1:] if name != "localhost"]
    return names[0] if names else socket.gethostname()


def _certificate() -> str:
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    end = "-----END CERTIFICATE-----\n"
    return bundle.read_text().partition(end)[0] + end


def serve() -> int:
    """Serve HTTP, and an abstract unix socket, from a process of their own; return the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    port = server.server_address[1]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0guard-{port}")
    listener.listen()
    parent = os.getpid()
    if os.fork() == 0:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        while os.getppid() == parent:
            threading.Event().wait(0.2)
        os._exit(0)
    server.server_close()
    return port


def _do(what: Callable[[], object] | BaseException) -> None:
    if isinstance(what, BaseException):
        raise what
    what()


def names_for(
    technique: Technique, names: dict[str, Any], report: dict[str, Any]
) -> dict[str, Any]:
    """Return the namespace of one run, whose functions write into its report."""

    def won(value: object) -> None:
        report["won"] = report["won"] or bool(value)

    def attempt(what: Callable[[], object] | BaseException) -> None:
        try:
            _do(what)
        except BaseException as error:  # noqa: BLE001 - whatever stopped it is the finding
            report["stopped"].append(f"{type(error).__name__}: {error}")

    return {**names, "won": won, "attempt": attempt, "__name__": f"technique_{technique.name}"}


def perform(
    technique: Technique, names: dict[str, Any], *, guarded: bool, confine: Confine | None = None
) -> dict[str, Any]:
    """Run one technique in a fork, guarded or confined otherwise; return what it reported."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        report: dict[str, Any] = {"won": False, "stopped": []}
        import signal  # noqa: PLC0415 - only here

        signal.alarm(_SECONDS)
        space = names_for(technique, {**names, "FREE": not guarded}, report)
        attempt = space["attempt"]
        enter = (lambda: confine(space, writer)) if confine else (lambda: None)
        attempt(lambda: _run(technique, space, enter, guarded=guarded))
        os.write(writer, json.dumps(report).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        raw = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) == _EXECUTED:
        return {"won": True, "stopped": []}
    return dict(json.loads(raw)) if raw else {"won": False, "stopped": [f"died: {status}"]}


class _Host:
    """An event loop of the host's, where it waits for a signal that comes after the guard."""

    def __init__(self, attempt: Callable[[BaseException], None]) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(
            lambda _, told: attempt(told["exception"]) if "exception" in told else None
        )
        self.signal = self.loop.create_future()
        self.waiting = self.loop.create_task(self._wait())
        self.loop.run_until_complete(asyncio.sleep(0))
        self.signal.add_done_callback(lambda future: future.result())
        self.future: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.future.add_done_callback(lambda future: future.done())

    def names(self) -> dict[str, object]:
        """Return what a technique may use of it."""
        return {"OUTER": self.loop, "SIGNAL": self.signal, "FUTURE": self.future}

    async def _wait(self) -> None:
        await self.signal

    def go_on(self) -> None:
        """Give the signal, and run what was left in the loop."""
        self.loop.call_soon(self.signal.set_result, None)
        self.future.set_result(None)
        self.loop.run_until_complete(asyncio.sleep(0.02))
        del self.waiting
        gc.collect()  # a task says what stopped it when it is given up


def _run(
    technique: Technique, space: dict[str, Any], enter: Callable[[], object], *, guarded: bool
) -> None:
    code = compile(technique.code, f"<{technique.name}>", "exec")
    space["HELD"] = os.open(space["SECRET"], os.O_RDONLY)
    space["LATER"], space["AGAIN"] = [], []
    space["LOOP"] = asyncio.new_event_loop() if "LOOP" in technique.code else None
    host = _Host(space["attempt"]) if _HOSTS & set(re.findall("[A-Z]+", technique.code)) else None
    space |= {} if host is None else host.names()
    enter()
    if guarded:
        the_guard = process_guard_context(
            "lab", "module", _rules(technique, space), [space["IN"]],
            allow_subprocess=technique.starts,
        )  # fmt: skip
        with the_guard:
            _execute(code, space)
    else:
        _execute(code, space)
    if host:
        host.go_on()
    for function in space["LATER"]:
        space["won"](function(space["SECRET"]))
    for function in space["AGAIN"]:
        _again(function, the_guard if guarded else nullcontext(), space)


def _execute(code: CodeType, space: dict[str, Any]) -> None:
    exec(code, space)  # noqa: S102 - that is the experiment
    if space["LOOP"] is not None:  # the host's, which runs what was left in it
        space["LOOP"].run_until_complete(asyncio.sleep(0.01))


def _again(
    function: Callable[[str], object],
    the_guard: AbstractContextManager[object],
    space: dict[str, Any],
) -> None:
    """Call what a technique left behind inside of guards that the host opens after its own."""
    folder = runtime.module_context("lab", folder=space["IN"])
    attempt, won = space["attempt"], space["won"]
    for guard in (the_guard, nullcontext() if space["FREE"] else folder):
        with guard:
            attempt(lambda: won(function(space["SECRET"])))


def _rules(technique: Technique, space: dict[str, Any]) -> list[Rule]:
    found = [("filesystem", "read", space["READABLE"]), ("network", "connect", "allowed.example")]
    if technique.starts:
        found.append(("filesystem", "execute", space["BIN"]))
        found += [("system_dependency", "execute", name) for name in ("true", "cat")]
    return [Rule(*each) for each in found]  # type: ignore[arg-type] # words


def prepare(folder: Path) -> dict[str, Any]:
    """Load what the techniques expect to be there; return the names that all of them know."""
    os.environ["DEMOCRAI_TEMP_DIR"] = str(folder / "temp")
    os.environ["DEMOCRAI_MARK"] = "1"
    module = folder / "lib"
    module.mkdir(parents=True, exist_ok=True)
    (module / "_ctypes_path.py").write_text(f"path = {str(_library('_ctypes'))!r}\n")
    sys.path.insert(0, str(module))
    importlib.import_module("_ctypes_path")  # so that a technique can import it

    port = serve()
    import ctypes  # noqa: PLC0415 - loaded before, as it is in most applications

    packages = _packages(folder)
    address = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    install()
    return {"PORT": port, "HOSTNAME": resolvable(), "GETPID": address, **packages}


def _packages(folder: Path) -> dict[str, ModuleType]:
    """Install a library that calls what it is handed, and a framework that opens guards itself."""
    place = folder / "lab-packages"
    place.mkdir()
    for name, text in (("handed_on", _LIBRARY), ("lab_framework", _FRAMEWORK)):
        (place / f"{name}.py").write_text(text)
    sys.path.insert(0, str(place))
    names = {"PACKAGE": "handed_on", "FRAMEWORK": "lab_framework"}
    return {name: importlib.import_module(module) for name, module in names.items()}


def main(folder: Path, wanted: list[str]) -> None:
    """Run the techniques and print what each did."""
    common = prepare(folder)
    for technique in TECHNIQUES:
        if (wanted and technique.name not in wanted) or sys.version_info < technique.least:
            continue
        for guarded in (False, True):
            place = folder / f"{technique.name}-{guarded}"
            place.mkdir()
            names = build(place) | common
            report = perform(technique, names, guarded=guarded)
            print(json.dumps({"name": technique.name, "guarded": guarded, **report}), flush=True)  # noqa: T201 - the result


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
