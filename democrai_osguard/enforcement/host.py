"""What this kernel and host can enforce: facts gathered once, each with what follows from it.

Nothing here changes anything, and nothing needs root. The kernel is asked by the launcher, in a
process of its own, so that this package has no native calls.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

from democrai_osguard.enforcement.cgroups import CgroupLayout, read_cgroup_layout
from democrai_osguard.enforcement.landlock_words import landlock_words
from democrai_osguard.errors import OsGuardError
from democrai_osguard_helper.client import Client, HelperRefused, HelperSilent, HelperUnavailable
from democrai_osguard_helper.protocol import ProtocolViolation, socket_path

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not on every user's PATH
_PATIENCE = 60.0  # seconds for a program that answers at once on a host that has time
HELPER_PATIENCE = 5.0  # for the helper, which may just be started by its socket


class HostUnknown(OsGuardError, RuntimeError):
    """What this host can enforce could not be found out."""

    code = "host_unknown"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing about this host: its value for machines, and two sentences for people."""

    name: str
    value: object
    words: str
    follows: str


def host_facts(helper: str | None = None) -> tuple[Fact, ...]:
    """Return what `status` tells of this host; `helper` is the socket that settings name."""
    kernel = _kernel()
    return (
        _system(kernel),
        _landlock(kernel),
        _seccomp(kernel),
        _cgroup(read_cgroup_layout()),
        _iptables(),
        _helper(helper or socket_path(), kernel),
    )


def iptables_backend(version: str) -> str:
    """Return which kernel interface this iptables writes to, from what it says of itself."""
    if "nf_tables" in version:
        return "nf_tables"
    return (
        "legacy" if "legacy" in version or re.match(r"iptables v1\.[0-7]\.", version) else "unknown"
    )


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What the launcher says of the kernel; the fields are those of its report."""

    release: str
    machine: str
    landlock_abi: int
    landlock_errata: int
    seccomp_actions: list[str]


def _kernel() -> _Kernel:
    command = [sys.executable, "-I", "-m", "democrai_osguard_launcher.host_report"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=_PATIENCE)  # noqa: S603 - our own module
    except (OSError, subprocess.SubprocessError) as error:
        raise HostUnknown(f"{HostUnknown.code}: the kernel's report failed: {error}") from error
    return _Kernel(**json.loads(done.stdout))


def _system(kernel: _Kernel) -> Fact:
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    python = sys.version.split()[0]
    words = f"Linux {kernel.release} on {kernel.machine}, Python {python}, as {who}"
    value = {"release": kernel.release, "machine": kernel.machine, "python": python}
    return Fact("system", value, words, "")


def _landlock(kernel: _Kernel) -> Fact:
    abi, errata = kernel.landlock_abi, kernel.landlock_errata
    words = f"Landlock: ABI {abi}, errata {errata:#x}" if abi else "Landlock: none"
    return Fact("landlock", {"abi": abi, "errata": errata}, words, landlock_words(abi))


def _seccomp(kernel: _Kernel) -> Fact:
    actions = kernel.seccomp_actions
    value = {"actions": actions}
    if not actions:
        follows = "system calls cannot be filtered; the launcher refuses to start a command"
        return Fact("seccomp", value, "seccomp: none", follows)
    follows = "system calls are filtered"
    if "user_notif" in actions:
        follows += "; a supervisor can complete the acts that Landlock cannot judge"
    return Fact("seccomp", value, f"seccomp: {', '.join(actions)}", follows)


def _cgroup(layout: CgroupLayout) -> Fact:
    value = {"version": layout.version, "mount": layout.mount}
    if layout.mount is None:
        follows = "no egress limits by address: they are held per version 2 cgroup"
        return Fact("cgroup", value, f"cgroups: {layout.version}", follows)
    words = f"cgroups: {layout.version}, version 2 at {layout.mount}"
    return Fact("cgroup", value, words, "a helper can hold egress limits for one sandbox")


def _iptables() -> Fact:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SBIN))
    program, ipset = shutil.which("iptables", path=path), shutil.which("ipset", path=path)
    value = {"backend": None, "ipset": ipset is not None}
    if program is None:
        follows = "the helper cannot use its firewall layer; cgroup-BPF can hold egress alone"
        return Fact("iptables", value, "iptables: not installed", follows)
    command = [program, "--version"]
    try:
        done = subprocess.run(  # noqa: S603 - a program of the host, found by name
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Fact(
            "iptables", value, f"iptables: does not answer ({error})", "as if it were not there"
        )
    backend = iptables_backend(done.stdout)
    words = f"iptables: {backend} backend, ipset {'found' if ipset else 'not installed'}"
    follows = "the helper has its firewall layer" if ipset else "the firewall layer needs ipset"
    return Fact("iptables", {**value, "backend": backend}, words, follows)


def _helper(path: str, kernel: _Kernel) -> Fact:
    """Ask the helper: a service manager takes connections for it, whether it answers or not."""
    value = {"socket": path, "reachable": False}
    follows = "no network rule is held by address; without any rule, sockets stay closed anyway"
    if "user_notif" in kernel.seccomp_actions:
        follows = "the launcher's broker holds network rules, call by call"
    try:
        with Client(path, HELPER_PATIENCE) as client:
            listeners = client.status().listeners
    except HelperSilent as error:
        problem = str(error).removeprefix(f"{path}: ")
        words = f"helper: the socket is there at {path}, and nobody answers ({problem})"
        return Fact("helper", value, words, follows)
    except (HelperUnavailable, HelperRefused, ProtocolViolation) as error:
        problem = str(error).removeprefix(f"{path}: ")
        return Fact("helper", value, f"helper: not reachable at {path} ({problem})", follows)
    follows = f"network rules are held by address; {decisions_words(listeners)}"
    value = {"socket": path, "reachable": True, "followed": listeners > 0}
    return Fact("helper", value, f"helper: answers at {path}", follows)


def decisions_words(listeners: int) -> str:
    """Say whether somebody brings this user's decisions to running sandboxes. Pure."""
    if listeners:
        return "decisions reach running sandboxes"
    return "decisions reach running sandboxes once an application or `serve` runs"
