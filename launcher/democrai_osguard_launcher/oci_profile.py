"""The seccomp policy for container runtimes: `python -I -m democrai_osguard_launcher.oci_profile`.

The lists of calls are the same. Of the judgements about arguments a profile can hold those that
say what is allowed; requests of `ioctl` and leases (`fcntl`) are refused one by one, which it
cannot, so that they are left to the runtime's own rules for devices, terminals and folders.
"""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import seccomp

if TYPE_CHECKING:
    from .bpf import Row

_POLICY = Path(__file__).with_name("seccomp_policy.json")
_ARCHITECTURES = ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"]
_ALL = 0xFFFFFFFF
# What is allowed of a call, each a list of alternatives: (argument, mask, value).
CONDITIONS: dict[str, list[tuple[int, int, int]]] = {
    "clone": [(0, 0x7E020000, 0)],
    "memfd_create": [(1, 0x8, 0x8)],
    "personality": [(0, _ALL, 0), (0, _ALL, _ALL)],
    "sendto": [(3, 0x20000000, 0)],
    "sendmsg": [(2, 0x20000000, 0)],
    "sendmmsg": [(3, 0x20000000, 0)],
    "socketpair": [(0, _ALL, 1)],
    "prlimit64": [(0, _ALL, 0)],
    "renameat2": [(4, 0x4, 0)],
}


def profile(sockets: tuple[str, ...] = ("unix",)) -> dict[str, Any]:
    """Return the policy as an OCI seccomp profile in which these kinds of sockets exist."""
    policy = json.loads(_POLICY.read_text(encoding="utf-8"))
    plain = [call for call in _listed(policy, "allow") if not _is_judged(call)]
    judged = [
        _rule([call], "SCMP_ACT_ALLOW", conditions=[condition])
        for call, conditions in CONDITIONS.items()
        for condition in conditions
    ]
    opened = [
        _rule(["socket"], "SCMP_ACT_ALLOW", conditions=list(conditions))
        for name in sockets
        for conditions in _alternatives(seccomp.SOCKETS[name])
    ]
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.ENOSYS,
        "architectures": _ARCHITECTURES,
        "syscalls": [
            _rule(plain, "SCMP_ACT_ALLOW"),
            *judged,
            *opened,
            _rule(_listed(policy, "refuse"), "SCMP_ACT_ERRNO", errno.EPERM),
            _rule(_listed(policy, "kill"), "SCMP_ACT_KILL_PROCESS"),
        ],
    }


def _is_judged(call: str) -> bool:
    # Metadata is refused or brokered by the launcher; a container has a file system of its own.
    return call in CONDITIONS or call in {"socket", "openat2", "pidfd_getfd"}


def _listed(policy: dict[str, Any], section: str) -> list[str]:
    return [call for line in policy[section] for call in line["calls"]]


def _alternatives(row: Row) -> list[tuple[tuple[int, int, int], ...]]:
    """Spread a row over single values: a profile has no list of values."""
    found: list[tuple[tuple[int, int, int], ...]] = [()]
    for argument, mask, values in row:
        found = [(*each, (argument, mask, value)) for each in found for value in values]
    return found


def _rule(
    names: list[str],
    action: str,
    code: int | None = None,
    conditions: list[tuple[int, int, int]] | None = None,
) -> dict[str, Any]:
    rule: dict[str, Any] = {"names": names, "action": action}
    if code is not None:
        rule["errnoRet"] = code
    if conditions:
        rule["args"] = [
            {"index": argument, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
            for argument, mask, value in conditions
        ]
    return rule


if __name__ == "__main__":
    json.dump(profile(tuple(sys.argv[1:]) or ("unix",)), sys.stdout, indent=2)
