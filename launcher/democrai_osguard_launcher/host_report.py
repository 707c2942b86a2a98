"""Prints what this kernel offers, as JSON: `python -I -m democrai_osguard_launcher.host_report`."""

from __future__ import annotations

import json
import os
import sys

from democrai_osguard_launcher import kernel

_SECCOMP_ACTIONS = "/proc/sys/kernel/seccomp/actions_avail"


def host_report() -> dict[str, object]:
    """Return the kernel's name and what it can hold; zeros and empty lists where it cannot."""
    system = os.uname()
    return {
        "release": system.release,
        "machine": system.machine,
        "landlock_abi": kernel.landlock_abi(),
        "landlock_errata": kernel.landlock_errata(),
        "seccomp_actions": _seccomp_actions() if kernel.has_seccomp() else [],
    }


def _seccomp_actions() -> list[str]:
    try:
        with open(_SECCOMP_ACTIONS, encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return ["errno"]  # older kernels have no list, and every filter has errno


if __name__ == "__main__":
    json.dump(host_report(), sys.stdout)
