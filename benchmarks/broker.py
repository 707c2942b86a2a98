"""What the broker costs: opens that it never sees, creates that wait for it, programs as a whole.

`python benchmarks/broker.py [--rounds 9]`. Each round times the variants right after each other;
figures are medians over the rounds. It writes nothing but temporary folders.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Words = list[str]

LAUNCHER = (sys.executable, "-I", "-m", "democrai_osguard_launcher")
MOST_FOR_OPENS, MOST_FOR_PROGRAMS = 1.05, 1.5  # beside no broker, beside no confinement
MOST_FOR_A_CREATE = 60.0  # microseconds
MOST_FOR_A_CONNECT = 250.0  # microseconds; our own limit, on the loopback
ALL_CREATES = 5000
OPENS = """
import os, sys, time
path = sys.argv[1]
begun, worked = time.perf_counter(), time.process_time()
for _ in range(20000):
    descriptor = os.open(path, os.O_RDONLY)
    os.read(descriptor, 100)
    os.close(descriptor)
print(time.perf_counter() - begun, time.process_time() - worked)
"""
CREATES = """
import os, statistics, sys, time
times = []
for number in range(1000):
    name = f"{sys.argv[1]}/{sys.argv[2]}-{number}"
    begun = time.perf_counter()
    descriptor = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    times.append(time.perf_counter() - begun)
    os.close(descriptor)
print(statistics.median(times))
"""
CONNECTS = """
import socket, statistics, sys, time
times = []
for _ in range(300):
    client = socket.socket()
    begun = time.perf_counter()
    client.connect(("127.0.0.1", int(sys.argv[1])))
    times.append(time.perf_counter() - begun)
    client.close()
print(statistics.median(times))
"""
MANY = """
import os, sys
for worker in range(8):
    if os.fork() == 0:
        for number in range(625):
            name = f"{sys.argv[1]}/{worker}-{number}"
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os._exit(0)
codes = [os.wait()[1] for _ in range(8)]
print(sum(codes))
"""


def numbers(words: Words) -> list[float]:
    """Run a command that prints numbers, and return them."""
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def run(words: Words) -> float:
    """Run a command that prints one number, and return it."""
    return numbers(words)[0]


def launched(words: Words, *rules: str) -> Words:
    """Return the command under these rules."""
    return [*LAUNCHER, *rules, "--", *words]


def python(script: str, *arguments: str) -> Words:
    """Return a command that runs a script."""
    return [sys.executable, "-I", "-c", script, *arguments]


def on(folder: Path, *operations: str) -> tuple[str, ...]:
    """Return the options that allow operations on a folder."""
    return tuple(word for each in operations for word in (f"--{each}", str(folder)))


def verdict(name: str, figure: str, limit: str, *, kept: bool) -> None:
    """Print one line of the table."""
    print(f"| {name} | {figure} | {limit} | {'kept' if kept else 'NOT KEPT'} |", flush=True)


def plain_opens(place: Path, rounds: int) -> None:
    """Compare a loop of opens and reads with and without a broker beside it.

    The clock on the wall decides: the processor's time would hide a call that waits. It is the
    steadier of the two on a busy machine, so that it is shown as well.
    """
    (place / "made").mkdir()
    (place / "file").write_text("x" * 100)
    words = python(OPENS, str(place / "file"))
    without = launched(words, *on(place / "file", "read"))
    beside = launched(words, *on(place / "file", "read"), *on(place / "made", "create"))
    pairs = [(numbers(beside), numbers(without)) for _ in range(rounds)]
    ratio, work = (statistics.median(a[i] / b[i] for a, b in pairs) for i in (0, 1))
    figure = f"{ratio:.3f}x (processor {work:.3f}x)"
    verdict("reads and plain opens", figure, f"{MOST_FOR_OPENS}x", kept=ratio <= MOST_FOR_OPENS)


def creates(place: Path, rounds: int, name: str = "a create") -> None:
    """Measure a create that waits for the broker."""
    bare, trapped = [], []
    for number in range(rounds):
        bare.append(run(python(CREATES, str(place), f"bare{number}")))
        words = python(CREATES, str(place), f"trapped{number}")
        trapped.append(run(launched(words, *on(place, "create"))))
    own, free = statistics.median(trapped) * 1e6, statistics.median(bare) * 1e6
    verdict(
        name,
        f"{own:.0f} µs, bare {free:.0f} µs",
        f"{MOST_FOR_A_CREATE:.0f} µs",
        kept=own <= MOST_FOR_A_CREATE,
    )


def creates_on_one_processor(place: Path, rounds: int) -> None:
    """Measure the same where no processor that sleeps must be woken."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)})
    try:
        creates(place, rounds, "a create, on one processor")
    finally:
        os.sched_setaffinity(0, every)


def many_creates(place: Path) -> None:
    """Count 5,000 creates of 8 processes."""
    begun = time.perf_counter()
    failed = run(launched(python(MANY, str(place)), *on(place, "create")))
    seconds, made = time.perf_counter() - begun, len(os.listdir(place))
    figure = f"{made} made in {seconds:.1f} s"
    verdict(
        "5,000 creates by 8 processes", figure, "no loss", kept=made == ALL_CREATES and not failed
    )


def whole(
    name: str, place: Path, rounds: int, command: Callable[[Path], Words], *rules: str
) -> None:
    """Compare a whole program, from start to end, with the same one unconfined."""
    ratios = []
    for number in range(rounds):
        seconds = []
        for kind, wrap in (("free", list), ("confined", lambda words: launched(words, *rules))):
            folder = place / f"{kind}{number}"
            folder.mkdir()
            begun = time.perf_counter()
            subprocess.run(wrap(command(folder)), check=True, capture_output=True, env=own(place))
            seconds.append(time.perf_counter() - begun)
        ratios.append(seconds[1] / seconds[0])
    ratio = statistics.median(ratios)
    verdict(name, f"{ratio:.2f}x", f"{MOST_FOR_PROGRAMS}x", kept=ratio <= MOST_FOR_PROGRAMS)


def own(home: Path) -> dict[str, str]:
    """Return an environment in which nobody's settings count."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home),
            "GIT_CONFIG_NOSYSTEM": "1", "PIP_NO_INPUT": "1"}  # fmt: skip


def clone(place: Path, rounds: int) -> None:
    """Clone a repository of 2,000 files: with links, as git does, and with copies.

    A copied object gets its time back, which is a call that waits; a linked one needs none.
    """
    source = place / "source"
    source.mkdir()
    for number in range(2000):
        (source / f"{number}.txt").write_text(f"file {number}\n" * 50)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=source, check=True, env=own(place))
    git = os.path.realpath(shutil.which("git") or "git")
    rules = (*on(place, "read", "create", "modify", "delete"), "--execute", git)
    rules += ("--execute", "/usr/lib/git-core", "--execute", os.path.realpath("/bin/sh"))
    for name, options in (("git clone", ()), ("git clone --no-hardlinks", ("--no-hardlinks",))):
        target = place / f"with{len(options)}"
        target.mkdir()
        words = ["git", "clone", "-q", *options, str(source)]
        whole(name, target, rounds, _into(words), *rules)


def _into(words: Words) -> Callable[[Path], Words]:
    return lambda to: [*words, str(to / "clone")]


def install(place: Path, rounds: int) -> None:
    """Install a wheel of 300 modules."""
    wheel, info = place / "thing-1.0-py3-none-any.whl", "thing-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        for number in range(300):
            file.writestr(f"thing/m{number}.py", f"x = {number}\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{info}/RECORD", "")
    words = ["-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-cache-dir",
             "--disable-pip-version-check"]  # fmt: skip
    rules = on(place, "read", "create", "modify", "delete")
    rules += ("--read", "/etc/debian_version")  # pip says in its name what it runs on
    whole(
        "pip install", place, rounds,
        lambda to: [sys.executable, "-I", *words, "--target", str(to / "there"), str(wheel)],
        *rules,
    )  # fmt: skip


def connects(rounds: int) -> None:
    """Measure a connection on the loopback that the broker dials."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
        port = str(server.getsockname()[1])
        words, rule = python(CONNECTS, port), ("--connect", f"127.0.0.1:{port}")
        pairs = []
        for _ in range(rounds):
            pairs.append((run(words), run(launched(words, *rule))))
            server.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                while True:
                    server.accept()[0].close()
    bare, trapped = (statistics.median(each) * 1e6 for each in zip(*pairs, strict=True))
    verdict(
        "a connect",
        f"{trapped:.0f} µs, bare {bare:.0f} µs",
        f"{MOST_FOR_A_CONNECT:.0f} µs",
        kept=trapped <= MOST_FOR_A_CONNECT,
    )


def places() -> Generator[Path, None, None]:
    """Yield fresh folders, one for each measurement."""
    with tempfile.TemporaryDirectory(prefix="osguard-bench-") as folder:
        number = 0
        while True:
            number += 1
            place = Path(folder, str(number))
            place.mkdir()
            yield place


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    fresh = places()
    print("| broker | figure | promise | |\n| --- | --- | --- | --- |")
    plain_opens(next(fresh), rounds)
    creates(next(fresh), rounds)
    creates_on_one_processor(next(fresh), rounds)
    many_creates(next(fresh))
    connects(rounds)
    clone(next(fresh), rounds)
    install(next(fresh), rounds)
    fresh.close()


if __name__ == "__main__":
    main()
