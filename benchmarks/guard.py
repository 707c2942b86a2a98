"""What the guard costs: each call with nothing installed, installed but idle, and guarded.

Every figure is a ratio to the same call in an interpreter without the guard. Each state is its
own process, and the processes of one call take turns, so that a slow moment hits all of them.
Run: python benchmarks/guard.py [--json]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROUNDS = 9
STATES = ("bare", "idle", "guarded")
# Call: set-up, statement, repetitions, highest ratio when guarded, highest when idle.
CALLS = {
    "open+read+close": ("", "with open(FILE) as f: f.read()", 4000, 1.4, 1.1),
    "os.open": ("", "os.close(os.open(FILE, os.O_RDONLY))", 10000, 1.9, None),
    "os.stat": ("", "os.stat(FILE)", 20000, 1.7, 1.25),
    "Path.exists": ("p = pathlib.Path(FILE)", "p.exists()", 10000, 1.6, None),
    "tcp connect": ("", "socket.create_connection(ADDRESS).close()", 2000, 1.25, 1.1),
    "walk": ("", "for _ in os.walk(TREE): pass", 40, 1.1, None),
    "import pandas": ("", "import pandas", 1, 1.1, None),
}
_SCRIPT = """
import os, pathlib, socket, sys, time
FILE, TREE, ADDRESS, STATE = {file!r}, {tree!r}, ("127.0.0.1", {port}), {state!r}
{setup}
def act():
    {statement}
def measure(count):
    chunk = max(count // 100, 1)  # short, so that most of them are not interrupted
    best = []
    for _ in range(count // chunk):
        start = time.perf_counter()
        for _ in range(chunk):
            act()
        best.append(time.perf_counter() - start)
    return min(best)
if STATE == "bare":
    import socket, asyncio
elif STATE == "idle":
    from democrai_osguard.guard import install
    install()
if STATE == "guarded":
    from democrai_osguard.guard import process_guard_context as guard
    with guard("bench", "module", allowed_paths=[{root!r}], allowed_targets=["127.0.0.1"]):
        {count} > 1 and measure(3)
        print(measure({count}))
else:
    {count} > 1 and measure(3)
    print(measure({count}))
"""
# A module with three rules, alone; and a tool with one, inside it.
_ENTERING = """
import json, time
from democrai_osguard.guard import process_guard_context as guard
def module():
    return guard("bench", "module", allowed_paths=["/srv"], allowed_targets=["localhost", "a.test"])
def tool():
    return guard("bench", "tool", allowed_paths=["/srv/tool"])
def quickest(make):
    best = []
    for _ in range(2000):
        context = make()
        start = time.perf_counter()
        with context:
            pass
        best.append(time.perf_counter() - start)
    return min(best) * 1e6
def made(make):
    best = []
    for _ in range(2000):
        start = time.perf_counter()
        make()
        best.append(time.perf_counter() - start)
    return min(best) * 1e6
with module():
    pass  # which installs the guard
costs = {"enter": quickest(module), "make": made(module)}
with module():
    costs["enter nested"] = quickest(tool)
print(json.dumps(costs))
"""


def measure(name: str, state: str, places: dict[str, object]) -> float:
    """Return the seconds of one run in a process of its own."""
    setup, statement, count, *_ = CALLS[name]
    script = _SCRIPT.format(setup=setup, statement=statement, count=count, state=state, **places)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def ratios(name: str, places: dict[str, object]) -> dict[str, float]:
    """Return idle and guarded as ratios to bare, from the fastest run of each."""
    runs: dict[str, list[float]] = {state: [] for state in STATES}
    rounds = 5 if name == "import pandas" else ROUNDS
    for _ in range(rounds):
        for state in STATES:
            runs[state].append(measure(name, state, places))
    return {state: min(runs[state]) / min(runs["bare"]) for state in STATES[1:]}


def import_cost() -> float:
    """Return the milliseconds that importing the package adds to a bare interpreter."""

    def once(script: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", script], check=True)
        return time.perf_counter() - start

    added = [once("import democrai_osguard.guard") - once("pass") for _ in range(ROUNDS)]
    return median(added) * 1000


def entering_cost() -> dict[str, float]:
    """Return the microseconds of opening and closing a guard, the quickest of many in one process.

    What a context is made of is read before: a runtime that keeps it pays for that once.
    """
    done = subprocess.run(
        [sys.executable, "-c", _ENTERING], capture_output=True, text=True, check=True
    )
    return {name: float(cost) for name, cost in json.loads(done.stdout).items()}


def lay_out(root: Path) -> dict[str, object]:
    """Make a small file and a tree of folders."""
    (root / "file").write_text("x" * 100)
    for number in range(60):
        folder = root / "tree" / f"d{number % 6}" / f"d{number}"
        folder.mkdir(parents=True)
        for leaf in range(12):
            (folder / f"f{leaf}").write_text("")
    return {"file": str(root / "file"), "tree": str(root / "tree"), "root": str(root)}


def serve() -> tuple[int, int]:
    """Start a server on this machine that accepts and forgets; return its port and process."""
    import socket  # noqa: PLC0415 - only here

    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = listener.getsockname()[1]
    pid = os.fork()
    if pid == 0:
        while True:
            listener.accept()[0].close()
    listener.close()
    return port, pid


def main() -> None:
    """Measure everything and print a table, or JSON."""
    port, server = serve()
    table = {}
    try:
        with tempfile.TemporaryDirectory() as root:
            places = lay_out(Path(root)) | {"port": port}
            for name in CALLS:
                table[name] = ratios(name, places)
    finally:
        os.kill(server, 9)
        os.waitpid(server, 0)
    cost, entering = import_cost(), entering_cost()
    if "--json" in sys.argv:
        print(json.dumps({"ratios": table, "import_ms": cost, "entering_us": entering}))
        return
    for name, (_, _, _, most, idle_most) in CALLS.items():
        found = table[name]
        print(
            f"{name:16} guarded {found['guarded']:5.2f} (at most {most})"
            f"   idle {found['idle']:5.2f} (at most {idle_most or '-'})"
        )
    print(f"{'import':16} {cost:5.1f} ms over a bare interpreter (at most 60)")
    for name, microseconds in entering.items():
        print(f"{name:16} {microseconds:5.1f} µs")


if __name__ == "__main__":
    main()
