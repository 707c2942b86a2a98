"""Builds the checked-in machine code of `steps.py` from its two sources. Needs GNU binutils.

Run it after a change of a source: `python launcher/build_steps.py`. For the architecture that is
not this machine's it takes Debian's `binutils-aarch64-linux-gnu` or `binutils-x86-64-linux-gnu`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE / "democrai_osguard_launcher"
ARCHITECTURES = ("x86_64", "aarch64")


def build(machine: str) -> bytes:
    """Return the code for one architecture: no headers, nothing to relocate."""
    with tempfile.TemporaryDirectory() as folder:
        built, bare = f"{folder}/built", f"{folder}/bare"
        _run(machine, "as", "-o", built, str(HERE / f"steps_{machine}.S"))
        _run(machine, "objcopy", "-O", "binary", "--only-section=.text", built, bare)
        return Path(bare).read_bytes()


def _run(machine: str, tool: str, *words: str) -> None:
    subprocess.run([f"{tools(machine)}{tool}", *words], check=True)  # noqa: S603 - our own words


def tools(machine: str) -> str:
    """Return what the names of the tools for this architecture begin with."""
    crossing = f"{machine.replace('_', '-')}-linux-gnu-"
    has_crossing = shutil.which(f"{crossing}as") is not None
    return crossing if has_crossing or os.uname().machine != machine else ""


def main() -> None:
    """Write the code of each architecture beside the modules."""
    for machine in ARCHITECTURES:
        (PACKAGE / f"steps_{machine}.bin").write_bytes(build(machine))


if __name__ == "__main__":
    main()
