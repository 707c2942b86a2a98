"""Puts every part under load at once, kills what does the work, and looks what is left behind.

Called as `python run.py MINUTES [FOLDER]`, as root: the helper works in a network namespace of its
own. What a FOLDER is left with can be looked at.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import NoReturn

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent), str(_HERE.parent.parent)]

from root import lab  # noqa: E402 - found by the line above
from root.daemons import Daemon  # noqa: E402
from soak import accounts  # noqa: E402
from soak.parts import INSTANCE, PARTS  # noqa: E402
from soak.span import Span  # noqa: E402

_SUBREAPER = 36
_REFUSALS = 4  # what the confined processes are refused is asked about, on the page's store


class Failed(Exception):
    """A part raised; its traceback says why."""


def soak(folder: Path, seconds: float, seed: int) -> Counter[str]:
    """Run every part for a time, at least one round each; return what was done, in figures."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # orphans come here, where they are seen
    with lab.fresh_namespace():
        _start_once(folder / "before")
        rules = accounts.firewall()
        listeners = lab.Listeners()
        try:
            done = _together(folder, Span(seconds), seed)
        finally:
            listeners.close()
        accounts.no_process_is_left()
        assert accounts.firewall() == rules, "firewall rules were left"
    assert not accounts.cgroups(INSTANCE), "cgroups were left"
    for part, most in (("decisions", 0), ("page", _REFUSALS)):
        done += accounts.decisions(folder / part)
        accounts.rows(folder / part, most)
    return done


def _start_once(folder: Path) -> None:
    """Let a helper set its tables up and end, so that they can be compared afterwards."""
    folder.mkdir()
    daemon = Daemon(folder, INSTANCE)
    daemon.start()
    daemon.wait()
    daemon.stop()


def _together(folder: Path, span: Span, seed: int) -> Counter[str]:
    running = {name: _begin(name, folder, span, seed) for name in PARTS}
    answers = {name: _end(*part) for name, part in running.items()}
    broken = [f"{name}:\n{answer}" for name, answer in answers.items() if isinstance(answer, str)]
    if broken:
        raise Failed("\n".join(broken))
    done: Counter[str] = Counter()
    for answer in answers.values():
        done.update(answer)
    return done


def _begin(name: str, folder: Path, span: Span, seed: int) -> tuple[int, int]:
    own = folder / name.replace(" ", "-")
    own.mkdir()
    hears, says = os.pipe()
    child = os.fork()
    if child == 0:
        _live(name, own, span, seed, says)
    os.close(says)
    return child, hears


def _live(name: str, own: Path, span: Span, seed: int, says: int) -> NoReturn:
    answer: object = "the part fell silent"
    try:
        chance = random.Random(f"{seed} {name}")  # noqa: S311 - a run can be made again
        answer = PARTS[name](own, span, chance)
    except BaseException:  # noqa: BLE001 - the parent fails with it
        answer = traceback.format_exc()
        span.cut_short()
    finally:
        os.write(says, json.dumps(answer).encode())
        os._exit(0)


def _end(child: int, hears: int) -> dict[str, int] | str:
    with os.fdopen(hears) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    answer: dict[str, int] | str = json.loads(text or '"the part died"')
    return answer


def main(minutes: float, folder: Path) -> None:
    """Soak, and print what was done."""
    if os.geteuid() != 0:
        sys.exit("the soak needs root: it runs a helper in a network namespace of its own")
    seed = random.SystemRandom().getrandbits(32)
    sys.stdout.write(f"→ {minutes:g} minutes of everything at once, seed {seed}\n")
    sys.stdout.flush()
    done = soak(folder, minutes * 60, seed)
    for name, count in sorted(done.items()):
        sys.stdout.write(f"  {count:8} {name}\n")
    sys.stdout.write("→ nothing was left behind, and every decision is accounted for\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="soak-") as made:
        main(float(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else made))
