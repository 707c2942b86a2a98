"""Tries the kernel's techniques in each peer, in a process that the peer itself started.

Called as `python side_by_side.py PEER` it prints what became of each technique, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent), str(_HERE.parent.parent)]

from escapes.outcome import ALLOWED, OWN, name_of_end  # noqa: E402 - found by the line above
from escapes.peers import PEERS, PYTHON, SYSTEMD  # noqa: E402
from escapes.private_systemd import is_running, private_systemd  # noqa: E402
from kernel import techniques  # noqa: E402
from kernel.world import new_world  # noqa: E402

if TYPE_CHECKING:
    from escapes.peers import Peer
    from kernel.techniques import World

# Techniques that act on a namespace: in one of the sandbox's own they reach nothing outside.
# A terminal of one's own is one of a file system of one's own.
_ACTS_ON = (
    (re.compile("queue$"), "ipc"),
    (re.compile("^name the host"), "uts"),
    (
        re.compile("^(connect to I|connect to a m|connect w|send a d)|^(netl|raw|packet|vsock)"),
        "net",
    ),
    (re.compile("key"), "user"),
    (re.compile("^type|line discipline$"), "mnt"),
)


class Unusable(Exception):
    """A peer is not here, or does not even do what it was told to allow."""


def verdicts(peer: Peer) -> dict[str, str]:
    """Return what became of each technique in a peer; raise Unusable where it does not run."""
    if not peer.version():
        raise Unusable("is not installed")
    if peer.name == SYSTEMD and not is_running():
        return _in_a_private_systemd()
    return _tried(peer)


def _in_a_private_systemd() -> dict[str, str]:
    with private_systemd() as enter:
        command = [*enter, sys.executable, __file__, SYSTEMD]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unusable(done.stderr.strip().rpartition("\n")[2])
    return dict(json.loads(done.stdout))


def _tried(peer: Peer) -> dict[str, str]:
    for uid in (0, peer.user):
        granted, _ = _attempt(peer, "", uid)
        if granted != ALLOWED:
            raise Unusable(f"as user {uid} refuses what was granted: {granted}")
    return {name: _verdict(peer, name) for name in techniques.TECHNIQUES}


def _verdict(peer: Peer, name: str) -> str:
    _, anybody = techniques.TECHNIQUES[name]
    verdict, places = _attempt(peer, name, peer.user if anybody else 0)
    kinds = [kind for pattern, kind in _ACTS_ON if pattern.search(name)]
    apart = any(places.get(kind) != os.readlink(f"/proc/self/ns/{kind}") for kind in kinds)
    return OWN if verdict == ALLOWED and apart else verdict


def _attempt(peer: Peer, name: str, uid: int) -> tuple[str, dict[str, str]]:
    with new_world(uid) as world:
        readable = world.inside.parent / "readable"
        for source in (_HERE / "attempt.py", techniques.TRUE):
            shutil.copy(source, readable)
        compiled = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(techniques.__file__).parent, readable / "techniques", ignore=compiled)
        command = [PYTHON, "-I", "-B", str(readable / "attempt.py"), name, _described(world)]
        try:
            said, code = peer.run(world, uid, command)
        except subprocess.TimeoutExpired:
            return "hangs", {}
    places, _, verdict = said.partition("\n")
    return verdict.strip() or name_of_end(code), json.loads(places or "{}")


def _described(w: World) -> str:
    fields = {**w._asdict(), "memory": ctypes.addressof(techniques.MEMORY)}
    return json.dumps(fields, default=str)


if __name__ == "__main__":
    (asked,) = (peer for peer in PEERS if peer.name == sys.argv[1])
    json.dump(_tried(asked), sys.stdout)
