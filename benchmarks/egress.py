"""What the helper costs: filling, sending, confining, holding many. Needs root; run it alone.

It works in a network namespace and cgroups of its own and sends nothing out of them:
`PYTHONPATH=helper python benchmarks/egress.py [--cycles 1000] [--alive 500]`.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from democrai_osguard.access import Identity, Operation, ResourceType, Scope, SubjectType
from democrai_osguard.approvals import ApprovalService, Operator, open_store
from democrai_osguard.enforcement.following import EgressLink
from democrai_osguard_helper import firewall_plan, kernel
from democrai_osguard_helper.bpf_hooks import HOOKS
from democrai_osguard_helper.bpf_layer import BpfLayer
from democrai_osguard_helper.cgroups import Tree, find_mount
from democrai_osguard_helper.client import Client, HelperUnavailable
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.firewall_layer import FirewallLayer
from democrai_osguard_helper.protocol import Confine, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from democrai_osguard_helper.cgroups import Box

PLACE: Final = "198.18.0.1"
PORT: Final = 7001
CLONE_NEWNET: Final = 0x40000000
_CONNECT: Final = (ResourceType.NETWORK, Operation.CONNECT)
_OPERATOR: Final = Operator("bench", super_role=True)
INSTANCES: Final = {"bpf": "bench1", "bpf,firewall": "bench2"}
SENDING_TURNS: Final = 60
_PROG_GET_NEXT_ID: Final = 11
STOCK: Final = 2  # boxes that wait for a peer
SETS_OF_A_BOX: Final = 6
HELPER: Final = Path(firewall_plan.__file__).parent.parent


_said: list[str] = []


def say(line: str) -> None:
    """Print a figure, and keep it for the page."""
    print(line, flush=True)
    _said.append(line)


def write() -> None:
    """Write what was measured next to the other figures."""
    cores, load = os.cpu_count(), os.getloadavg()[2]
    host = (
        f"Python {platform.python_version()}, Linux {platform.release()}, {cores} cores, "
        f"load {load:.1f}"
    )
    page = HELPER.parent / "docs" / "benchmarks-egress.md"
    lines = "\n".join(_said)
    text = f"# Egress\n\nWritten by `make bench` as root on {host}.\n\n```\n{lines}\n```\n"
    page.write_text(text, encoding="utf-8")


def endpoints(count: int) -> list[Endpoint]:
    """Return so many endpoints; the last is the one that is used."""
    others = (f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}" for i in range(count - 1))
    found = [Endpoint(parse_network(text), 443, "tcp") for text in others]
    return [*found, Endpoint(parse_network(PLACE), PORT)]


def milliseconds(act: Callable[[], object]) -> float:
    """Return how long something took."""
    begun = time.perf_counter()
    act()
    return (time.perf_counter() - begun) * 1000


def median(act: Callable[[], object], times: int) -> float:
    """Return the median time of something done again and again."""
    return statistics.median(milliseconds(act) for _ in range(times))


def filling(tree: Tree) -> None:
    """Fill in 1,000 endpoints: with a bare `ipset restore`, then in both layers."""
    names = firewall_plan.Names("bench", tree.name)
    firewall, bpf = FirewallLayer(names), BpfLayer()
    firewall.reason()
    wanted = endpoints(1000)
    words = "".join(f"add bare {e.network},tcp:443\n" for e in wanted)
    create = "create bare hash:net,port hashsize 1024\n"
    alone, both = [], {"bpf": list[float](), "firewall": list[float](), "together": list[float]()}
    for _ in range(9):
        begun = time.perf_counter()
        subprocess.run(["ipset", "restore"], input=create + words, text=True, check=True)
        alone.append((time.perf_counter() - begun) * 1000)
        subprocess.run(["ipset", "destroy", "bare"], check=True)
        spent = _fill_once(tree, (firewall, bpf), wanted)
        for name, found in both.items():
            found.append(spent.get(name, sum(spent.values())))
    base = statistics.median(alone)
    say(f"1,000 endpoints: bare ipset restore {base:.1f} ms")
    for name, found in both.items():
        middle = statistics.median(found)
        say(f"  {name:9} {middle:5.1f} ms  {middle / base:.2f} x")


def _fill_once(
    tree: Tree, layers: Sequence[FirewallLayer | BpfLayer], wanted: list[Endpoint]
) -> dict[str, float]:
    box = tree.new_box()
    for layer in layers:
        layer.prepare(box)
    spent = {}
    for layer in layers:
        begun = time.perf_counter()
        layer.apply(box, wanted)
        spent[layer.name] = (time.perf_counter() - begun) * 1000
    for layer in layers:
        layer.drop([box])
    box.remove()
    return spent


def inside(box: Box, act: Callable[[], float]) -> float:
    """Measure in a process inside the box."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            box.move(os.getpid())
            os.write(writer, str(act()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = float(pipe.read() or "nan")
    os.wait()
    return found


def compare(name: str, few: Box, many: Box, act: Callable[[], float]) -> None:
    """Measure in both boxes, in short turns right after each other; either is the first at times.

    What disturbs the machine disturbs one turn: the middle one of all ratios says most.
    """
    pairs = []
    for turn in range(SENDING_TURNS):
        first, second = (few, many) if turn % 2 else (many, few)
        spent = {box: inside(box, act) for box in (first, second)}
        pairs.append((spent[few], spent[many]))
    at_few, at_many = (statistics.median(column) for column in zip(*pairs, strict=True))
    low, middle, high = statistics.quantiles((b / a for a, b in pairs), n=4)
    say(
        f"{name}: {at_few:.1f} us at 10, {at_many:.1f} us at 10,000: {middle:.2f} x "
        f"(half of {SENDING_TURNS} turns between {low:.2f} and {high:.2f})"
    )


def _connects() -> float:
    def once() -> None:
        with socket.create_connection((PLACE, PORT)):
            pass

    return median(once, 300) * 1000


def _sends() -> float:
    talk = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    return median(lambda: talk.sendto(b"x", (PLACE, PORT)), 2000) * 1000


def sending(tree: Tree) -> None:
    """Measure a connect and a UDP send at 10 and at 10,000 endpoints, both layers holding."""
    names = firewall_plan.Names("bench", tree.name)
    layers = (FirewallLayer(names), BpfLayer())
    server = socket.create_server((PLACE, PORT), backlog=1024)
    sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sink.bind((PLACE, PORT))
    accepting = os.fork()
    if accepting == 0:
        while True:
            server.accept()[0].close()
    boxes = {}
    for count in (10, 10_000):
        box = boxes[count] = tree.new_box()
        for layer in layers:
            layer.reason()
            layer.prepare(box)
            layer.apply(box, endpoints(count))
    for name, act in (("connect", _connects), ("UDP send", _sends)):
        compare(name, boxes[10], boxes[10_000], act)
    os.kill(accepting, signal.SIGKILL)
    os.waitpid(accepting, 0)
    for layer in layers:
        layer.drop(list(boxes.values()))
    for box in boxes.values():
        box.remove()


@contextlib.contextmanager
def daemon(layers: str) -> Iterator[tuple[str, int]]:
    """Run a daemon with its state in memory; yield its socket and its pid."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        process = started(layers, folder)
        yield f"{folder}/s", process.pid
        process.terminate()
        process.wait()


def started(layers: str, folder: str) -> subprocess.Popen[bytes]:
    """Start a daemon with its state in a folder, and wait until it answers."""
    script = (
        f"import sys; sys.path.insert(0, {str(HELPER)!r})\n"
        "from democrai_osguard_helper.main import run; run()"
    )
    words = ["--socket", f"{folder}/s", "--state", folder, "--instance", INSTANCES[layers]]
    process = subprocess.Popen([sys.executable, "-I", "-c", script, *words, "--layers", layers])
    while True:
        with contextlib.suppress(HelperUnavailable), Client(f"{folder}/s") as client:
            client.status()
            return process
        time.sleep(0.005)


def confined(path: str, policy: Sequence[Endpoint], *, early: float = 0.0) -> tuple[float, int]:
    """Confine a child; return the round trip in milliseconds, and the child, which stays."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            client = Client(path)
            time.sleep(early)
            request = Confine(Subject("tool", "bench"), None, tuple(policy), (), "partial")
            os.write(writer, str(milliseconds(lambda: client.confine(request))).encode())
            os.close(writer)
            signal.pause()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = float(pipe.read() or "nan")
    return found, pid


def end(pid: int) -> None:
    """End a child."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def memory(pid: int) -> int:
    """Return the resident memory of a process in KiB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0])


def confining() -> None:
    """Measure the round trip of `confine`, with boxes in stock, each way in turn."""
    # The launcher connects early, and makes its plan meanwhile.
    ways = [(layers, early) for layers in ("bpf", "bpf,firewall") for early in (0.0, 0.02)]
    times: dict[tuple[str, float], list[float]] = {way: [] for way in ways}
    with daemon("bpf") as (one, _), daemon("bpf,firewall") as (both, _):
        for _ in range(25):
            for layers, early in ways:
                time.sleep(0.4)  # longer than the helper stays warm after the last one
                path = one if layers == "bpf" else both
                spent, pid = confined(path, endpoints(10), early=early)
                times[layers, early].append(spent)
                end(pid)
    for (layers, early), found in times.items():
        middle = statistics.median(found)
        say(
            f"confine ({layers}, asked {early * 1000:.0f} ms after connecting): "
            f"best {min(found):.1f} ms, median {middle:.1f} ms, worst {max(found):.1f} ms"
        )


def restarting(alive: int) -> None:
    """Measure how long a killed daemon's successor takes to answer, with sandboxes to adopt."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        process = started("bpf,firewall", folder)
        times, children = [], list[int]()
        for wanted in (0, alive):
            children += [confined(f"{folder}/s", endpoints(10))[1] for _ in range(wanted)]
            rounds = []
            for _ in range(3):
                process.kill()
                process.wait()
                begun = time.perf_counter()
                process = started("bpf,firewall", folder)
                rounds.append(time.perf_counter() - begun)
            times.append(min(rounds))
        for child in children:
            end(child)
        with Client(f"{folder}/s") as client:
            while client.list().sandboxes:
                time.sleep(0.2)
        process.terminate()
        process.wait()
    none, many = times
    say(f"killed and back: {none:.2f} s, with {alive} sandboxes to adopt {many:.2f} s")


def following() -> None:
    """Measure how long a decision takes to reach a running sandbox."""
    server = socket.create_server((PLACE, PORT))
    what = Identity(SubjectType.TOOL, "bench", *_CONNECT, f"{PLACE}:{PORT}", Scope.PERMANENT)
    with daemon("bpf,firewall") as (path, _), tempfile.TemporaryDirectory() as folder:
        service = ApprovalService(open_store(f"sqlite://{folder}/state/a.sqlite3"))
        reader, writer = os.pipe()
        pid = _confined_knocker(path, writer)
        opened, closed = [], []
        with EgressLink(service, path), os.fdopen(reader, "rb", buffering=0) as pipe:
            for _ in range(9):
                time.sleep(0.5)
                begun = time.monotonic()
                service.record(what, _OPERATOR)
                opened.append(float(pipe.readline()) - begun)
                begun = time.monotonic()
                service.revoke(service.list_decisions()[0].id, _OPERATOR)
                closed.append(float(pipe.readline()) - begun)
        end(pid)
        service.close()
    server.close()
    for name, times in (("approval", opened), ("revocation", closed)):
        middle, worst = statistics.median(times) * 1000, max(times) * 1000
        say(f"{name} to a running sandbox: median {middle:.0f} ms, worst {worst:.0f} ms")


def _confined_knocker(path: str, writer: int) -> int:
    """Start a process that knocks until it is let in, then waits until its socket dies."""
    pid = os.fork()
    if pid == 0:
        try:
            Client(path).confine(Confine(Subject("tool", "bench"), None, (), (), "partial"))
            while True:
                os.write(writer, f"{_knock()}\n".encode())
        finally:
            os._exit(0)
    return pid


_waiting: list[socket.socket] = []


def _knock() -> float:
    if _waiting:
        with _waiting.pop() as talk, contextlib.suppress(ConnectionAbortedError):
            talk.recv(1)
        return time.monotonic()
    while True:
        try:
            _waiting.append(socket.create_connection((PLACE, PORT)))
            return time.monotonic()
        except OSError:
            time.sleep(0.002)


def programs() -> int:
    """Return how many BPF programs the kernel has."""
    count, number = 0, 0
    call = (ctypes.c_long(kernel.bpf_number()), ctypes.c_int(_PROG_GET_NEXT_ID))
    while True:
        attributes = ctypes.create_string_buffer(struct.pack("=III", number, 0, 0))
        if ctypes.CDLL(None).syscall(*call, attributes, ctypes.c_uint(12)) != 0:
            return count
        count, number = count + 1, struct.unpack_from("=I", attributes.raw, 4)[0]


def holding(alive: int, cycles: int) -> None:
    """Many sandboxes at once, then many one after the other."""
    loaded = programs()
    with daemon("bpf,firewall") as (path, pid):
        before = memory(pid)
        begun = time.perf_counter()
        children = [confined(path, endpoints(10))[1] for _ in range(alive)]
        seconds = time.perf_counter() - begun
        with Client(path) as client:
            held = sum(item.populated for item in client.list().sandboxes)
        say(f"{held} sandboxes alive after {seconds:.1f} s, {memory(pid) - before} KiB more")
        for child in children:
            end(child)
        cycling(path, pid, cycles, loaded)


def cycling(path: str, pid: int, cycles: int, loaded: int) -> None:
    """Create and release; print what is left."""
    sizes = []
    for turn in range(cycles):
        end(confined(path, endpoints(10))[1])
        if turn % (cycles // 4) == cycles // 8:
            sizes.append(memory(pid))
    with Client(path) as client:
        while client.list().sandboxes:
            time.sleep(0.2)
    time.sleep(1.5)
    saves = [_said_by("iptables-save"), _said_by("ip6tables-save")]
    chains = sum(text.count(":OSG-bench2-") for text in saves)
    sets = len(_said_by("ipset", "list", "-n").split())
    boxes, more = len(Tree(find_mount(), "bench2").boxes()), programs() - loaded
    say(
        f"{cycles} cycles: memory {sizes} KiB, {len(os.listdir(f'/proc/{pid}/fd'))} descriptors, "
        f"{chains} chains, {sets} sets, {more} programs, {boxes} boxes (two wait in stock)"
    )
    of_each = len(saves), SETS_OF_A_BOX, len(HOOKS), 1
    if (chains, sets, more, boxes) != tuple(STOCK * each for each in of_each):
        sys.exit("egress: something was left behind")


def _said_by(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Measure everything once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--alive", type=int, default=500)
    options = parser.parse_args()
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        sys.exit("egress: no network namespace of our own: root is needed")
    for words in ("link set lo up", f"addr add {PLACE}/32 dev lo"):
        subprocess.run(["ip", *words.split()], check=True)
    tree = Tree(find_mount(), "bench")
    tree.create()
    filling(tree)
    sending(tree)
    tree.remove()
    confining()
    following()
    restarting(256)
    holding(options.alive, options.cycles)
    write()


if __name__ == "__main__":
    main()
