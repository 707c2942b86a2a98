"""`democrai-osguard seccomp`: the launcher's policy of system calls, for other programs."""

from __future__ import annotations

import subprocess
import sys

import click

# Asked in a process of its own, like everything of the launcher that is not its plan.
_EXPORTERS = {"oci": "democrai_osguard_launcher.oci_profile"}
_SOCKETS = ("unix",)
_NETWORK_SOCKETS = ("tcp", "udp", "netlink route")
_PATIENCE = 30.0  # seconds for a program that should answer at once


@click.group()
def seccomp() -> None:
    """Give the policy of system calls to other programs."""


@seccomp.command()
@click.option(
    "--format", "form", type=click.Choice(tuple(_EXPORTERS)), default="oci", show_default=True,
    help="oci: for docker, podman, containerd and Kubernetes.",
)  # fmt: skip
@click.option("--network", is_flag=True, help="Let TCP, UDP and routing sockets exist.")
@click.option("--json", "as_json", is_flag=True, help="For machines, as it always is.")
def export(form: str, *, network: bool, as_json: bool) -> None:  # noqa: ARG001 - every format is JSON
    """Print the policy of system calls that every launched command has."""
    sockets = (*_SOCKETS, *(_NETWORK_SOCKETS if network else ()))
    command = [sys.executable, "-I", "-m", _EXPORTERS[form], *sockets]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE)  # noqa: S603 - our own module
    click.echo(done.stdout)
