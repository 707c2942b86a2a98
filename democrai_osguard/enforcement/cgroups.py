"""Where this host mounts cgroup version 2, read from mountinfo. Pure but for one reader."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class CgroupLayout:
    """Which versions are mounted, and where version 2 is."""

    version: str  # "v2", "hybrid", "v1" or "none"
    mount: str | None


def read_cgroup_layout(mountinfo: str = "/proc/self/mountinfo") -> CgroupLayout:
    """Return this host's layout."""
    with open(mountinfo, encoding="utf-8", errors="surrogateescape") as file:
        return cgroup_layout(file.read())


def cgroup_layout(mountinfo: str) -> CgroupLayout:
    """Return the layout that a mountinfo text describes."""
    mounts = [_fields(line) for line in mountinfo.splitlines() if " - " in line]
    second = [where for kind, where in mounts if kind == "cgroup2"]
    first = any(kind == "cgroup" for kind, _ in mounts)
    if second:
        return CgroupLayout("hybrid" if first else "v2", second[0])
    return CgroupLayout("v1" if first else "none", None)


def _fields(line: str) -> tuple[str, str]:
    front, _, back = line.partition(" - ")
    where = _OCTAL.sub(lambda escape: chr(int(escape.group(1), 8)), front.split()[4])
    return back.split()[0], where
