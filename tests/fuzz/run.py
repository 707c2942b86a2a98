"""Runs the fuzzers for as long as one likes: `python run.py MINUTES [TARGET …]`.

Each target gets its share of the time in a process of its own: with atheris, which looks for inputs
that reach new code, where it is installed; else with Hypothesis alone. A failure is printed with
what caused it, and the run goes on with the next target.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent), str(_HERE.parent.parent)]

from hypothesis import HealthCheck, seed, settings  # noqa: E402 - found by the line above

_PACKAGES = ["democrai_osguard", "democrai_osguard_launcher", "democrai_osguard_helper"]
_SEEDS, _SEED_BYTES = 50, 4096
_ROUND = 200  # inputs between two looks at the clock


def _one(name: str, seconds: float) -> None:
    if importlib.util.find_spec("atheris"):
        _with_atheris(name, seconds)
    else:
        _with_hypothesis(name, seconds)


def _with_atheris(name: str, seconds: float) -> None:
    atheris = importlib.import_module("atheris")  # only where it is installed

    with atheris.instrument_imports(include=_PACKAGES):
        from fuzz.targets import TARGETS  # noqa: PLC0415 - instrumented as it is imported
    free = settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    fuzzed = free(TARGETS[name].property())
    feed = fuzzed.hypothesis.fuzz_one_input  # type: ignore[attr-defined]

    def fed(data: bytes) -> None:
        try:
            feed(data)
        except BaseException as error:
            sys.stderr.write("\n".join(getattr(error, "__notes__", [])) + "\n")
            raise

    with tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as corpus:
        for number in range(_SEEDS):  # Hypothesis draws from the bytes: too few are no input at all
            Path(corpus, str(number)).write_bytes(os.urandom(_SEED_BYTES))
        limits = [f"-max_total_time={seconds:.0f}", "-len_control=0", f"-max_len={_SEED_BYTES}",
                  f"-artifact_prefix={corpus}/"]  # fmt: skip
        atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", "-verbosity=1", corpus], fed)
        atheris.Fuzz()


def _with_hypothesis(name: str, seconds: float) -> None:
    from fuzz.targets import TARGETS  # noqa: PLC0415 - as above

    free = settings(
        max_examples=_ROUND, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    must_hold = free(TARGETS[name].property())
    until = time.monotonic() + seconds
    rounds = 0
    while not rounds or time.monotonic() < until:
        seed(random.getrandbits(64))(must_hold)()
        rounds += 1
    sys.stdout.write(f"  rounds of {_ROUND} inputs: {rounds}\n")


def main(minutes: float, names: list[str]) -> int:
    """Run each target for its share of the time; return how many failed."""
    from fuzz.targets import TARGETS  # noqa: PLC0415 - as above

    chosen = names or list(TARGETS)
    failed = 0
    for name in chosen:
        share = minutes * 60 / len(chosen)
        sys.stdout.write(f"→ {name}, for {share:.0f} seconds\n")
        sys.stdout.flush()
        command = [sys.executable, __file__, "--one", name, str(share)]
        failed += subprocess.run(command, check=False).returncode != 0
    sys.stdout.write(f"→ {len(chosen)} targets, {failed} with a failure\n")
    return failed


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        _one(sys.argv[2], float(sys.argv[3]))
    else:
        sys.exit(main(float(sys.argv[1]), sys.argv[2:]) != 0)
