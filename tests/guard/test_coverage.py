"""Every C function and every audit event of each interpreter has its place in the tables."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined
from host_features import interpreter

from democrai_osguard.guard import install
from democrai_osguard.guard.sealed.hook import JUDGES

if TYPE_CHECKING:
    from pathlib import Path

# Asked of each interpreter: its functions by module, and the events that it may raise.
_SURVEY = r"""
import glob, importlib, json, os, re, sys, sysconfig, warnings
warnings.simplefilter("ignore")
functions = {}
for name in json.loads(sys.argv[1]):
    try:
        module = importlib.import_module(name)
    except ImportError:
        continue
    functions[name] = sorted(
        key for key, value in vars(module).items()
        if callable(value) and not key.startswith("__")
        and not (isinstance(value, type) and issubclass(value, BaseException))
    )
events = set()
stdlib = sysconfig.get_path("stdlib")
for path in glob.glob(stdlib + "/**/*.py", recursive=True):
    if not re.search(r"/(test|tests|site-packages|idlelib)/", path):
        text = open(path, errors="ignore").read()
        events.update(re.findall(r"\baudit\(\s*[\"']([\w./]+)[\"']", text))
binaries = [os.path.realpath(sys.executable), *glob.glob(stdlib + "/lib-dynload/*.so")]
binaries += glob.glob(str(sysconfig.get_config_var("LIBDIR")) + "/libpython3*.so*")
roots = (
    "os socket sys gc ctypes cpython _thread fcntl mmap resource sqlite3 signal marshal code"
    " function object builtins pickle syslog time array _posixsubprocess"
)
shape = re.compile(rb"\x00((?:%s)\.[\w.]+(?:/\w+)?)(?=\x00)" % roots.replace(" ", "|").encode())
for path in binaries:
    events.update(found.decode() for found in shape.findall(open(path, "rb").read()))
print(json.dumps([functions, sorted(events)]))
"""
# Texts in the binaries that look like events: types, headers and modules.
_NOT_EVENTS = frozenset(
    {
        "array.array",
        "array.arrayiterator",
        "ctypes._layout",
        "ctypes.error_object",
        "mmap.mmap",
        "os.path",
        "os.terminal_size",
        "signal.itimer_error",
        "socket.gaierror",
        "socket.herror",
        "socket.timeout",
        "sqlite3.dump",
        "sys._jit",
        "sys.monitoring.branch_event_handler",
        "sys.flags",
        "sys.legacy_event_handler",
        "sys.thread_info",
        "sys.monitoring",
    }
)


def table(text: str, heading: str) -> list[list[str]]:
    """Return the rows of the table under a heading."""
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def placed_functions(repo: Path) -> dict[tuple[str, str], str]:
    """Return the net of each function in the tables."""
    text = (repo / "docs" / "guard-coverage.md").read_text()
    rows = table(text, "C functions")
    return {(module, name): net for module, names, net, _ in rows for name in names.split()}


def placed_events(repo: Path) -> dict[str, str]:
    """Return the net of each event in the tables."""
    text = (repo / "docs" / "guard-coverage.md").read_text()
    return {name: net for names, net, _ in table(text, "Audit events") for name in names.split()}


def survey(python: str, modules: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return what an interpreter has: functions by module, and events."""
    command = [python, "-c", _SURVEY, json.dumps(modules)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    functions, events = json.loads(done.stdout)
    return functions, [event for event in events if _is_event(event)]


def _is_event(text: str) -> bool:
    last = text.rpartition(".")[2]
    type_like = (
        last.lstrip("_")[:1].isupper()
        or last.startswith("struct_")
        or last.endswith(("_info", "_result"))
    )
    known_upper = text.startswith(
        ("cpython.", "ctypes.PyObj", "subprocess.Popen", "pdb.", "urllib.")
    )
    noise = last in {"c", "h", "size", "so", "py"} or last.startswith("_local")
    return (
        text not in _NOT_EVENTS and not noise and (known_upper or not type_like) and last != "lock"
    )


@pytest.mark.parametrize(
    "version",
    [
        "here",
        pytest.param("3.12", marks=pytest.mark.needs("python3.12")),
        pytest.param("3.13", marks=pytest.mark.needs("python3.13")),
    ],
)
def test_everything_has_its_place(version: str, repo: Path) -> None:
    functions, events = placed_functions(repo), placed_events(repo)
    python = sys.executable if version == "here" else interpreter(version)
    found, raised = survey(python, sorted({module for module, _ in functions}))
    assert found["posix"], "the survey found nothing"
    assert "os.listdir" in raised
    unplaced = [
        f"{module}.{name}"
        for module, names in found.items()
        for name in names
        if (module, name) not in functions
    ]
    assert unplaced == []
    assert [event for event in raised if event not in events] == []


def test_the_hook_judges_exactly_the_events_that_say_so(repo: Path) -> None:
    held = {event for event, net in placed_events(repo).items() if net == "hook"}
    assert held == set(JUDGES)


def test_a_wrapper_stands_where_the_table_says_so(repo: Path) -> None:
    rows = placed_functions(repo)

    def check() -> object:
        import importlib  # noqa: PLC0415 - in the child only

        install()
        missing = []
        for (module_name, name), net in rows.items():
            if not net.startswith("wrapper"):
                continue
            try:
                module = importlib.import_module(module_name)
            except ImportError:
                continue
            function = getattr(module, name, None)
            if function is not None and not hasattr(function, "democrai_osguard"):
                missing.append(f"{module_name}.{name}")
        return missing

    assert confined(check) == []
