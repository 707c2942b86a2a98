"""Builds the checked-in seccomp programs: of the policy file, and of the plainest arguments.

Run it after a change of the policy or of `seccomp.py`: `python launcher/build_seccomp.py`. It needs
pyseccomp and libseccomp. The launcher itself never
imports pyseccomp: that would cost more than the launch.
"""

from __future__ import annotations

import errno
import json
import tempfile
from pathlib import Path
from typing import Any

import pyseccomp  # type: ignore[import-not-found, import-untyped, unused-ignore]

from democrai_osguard_launcher import seccomp, stored_programs

PACKAGE = Path(__file__).parent / "democrai_osguard_launcher"
ARCHITECTURES = {"x86_64": pyseccomp.Arch.X86_64, "aarch64": pyseccomp.Arch.AARCH64}
_BINARY_TREE = 2  # logarithmic search instead of one comparison per call


def build(machine: str, policy: dict[str, Any]) -> bytes:
    """Return the BPF program of the policy's call lists for one architecture."""
    filter_ = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.ENOSYS))
    if pyseccomp.system_arch() != ARCHITECTURES[machine]:
        filter_.remove_arch(pyseccomp.system_arch())
        filter_.add_arch(ARCHITECTURES[machine])
    filter_.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    filter_.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, _BINARY_TREE)
    actions = {
        "allow": pyseccomp.ALLOW,
        "refuse": pyseccomp.ERRNO(errno.EPERM),
        "kill": pyseccomp.KILL_PROCESS,
    }
    for section, action in actions.items():
        for line in policy[section]:
            for call in line["calls"]:
                filter_.add_rule(action, call)
    with tempfile.TemporaryFile() as file:
        filter_.export_bpf(file)
        file.seek(0)
        return file.read()


def main() -> None:
    """Write the programs of each architecture beside the policy."""
    policy = json.loads((PACKAGE / "seccomp_policy.json").read_text())
    for machine in ARCHITECTURES:
        programs = {"calls": build(machine, policy)}
        for sockets, name in stored_programs.PLAIN_ARGUMENTS.items():
            programs[name] = seccomp.argument_program(machine, sockets, truncate_is_seen=True)
        for name, program in programs.items():
            Path(stored_programs.file_name(machine, name)).write_bytes(program)


if __name__ == "__main__":
    main()
