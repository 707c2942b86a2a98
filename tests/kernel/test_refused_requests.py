"""Requests that act past every other check: refused by the filter itself, whatever is opened."""

from __future__ import annotations

import os
import termios
from typing import TYPE_CHECKING

import pytest
from host_features import lack
from kernel.techniques import call

from democrai_osguard_launcher.seccomp import REFUSED_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.conftest import Confined, Free, Grant

pytestmark = pytest.mark.needs("landlock", "seccomp", "root")

NOBODY = 65534
IOCTL = 16
TIOCLINUX = 0x541C
REQUESTS = {
    "TIOCSTI": termios.TIOCSTI,
    "TIOCLINUX": TIOCLINUX,
    "TIOCSETD": termios.TIOCSETD,
    # Of file systems that this host need not have.
    "FAT_IOCTL_SET_ATTRIBUTES": 0x40047211,
    "OCFS2_IOC_REFLINK": 0x40186F04,
    **{why.split()[0].rstrip(","): request for request, why in REFUSED_REQUESTS.items()},
}
SHIFT_STATE = bytes([6, *bytes(7)])  # of what TIOCLINUX can do the part that only asks
CONSOLE = "/dev/tty0"
AT_THE_CONSOLE: tuple[Grant, ...] = (("read", CONSOLE), ("modify", CONSOLE))


def to_a_pipe(request: int) -> Callable[[], object]:
    return lambda: call(IOCTL, os.pipe()[0], request, bytes(4096))


def to_the_console(request: int, argument: bytes) -> Callable[[], object]:
    def attempt() -> None:
        console = os.open(CONSOLE, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        call(IOCTL, console, request, argument)

    return attempt


@pytest.mark.parametrize("uid", [0, NOBODY], ids=["root", "nobody"])
@pytest.mark.parametrize("upper_half", [0, 1 << 32], ids=["plain", "dirty upper half"])
@pytest.mark.parametrize("name", REQUESTS)
def test_only_the_filter_refuses_a_request_at_what_has_no_use_for_it(
    name: str, upper_half: int, uid: int, free: Free, confined: Confined
) -> None:
    """The kernel says ENOTTY of a pipe and Landlock nothing, so that EPERM is the filter's word."""
    attempt = to_a_pipe(REQUESTS[name] | upper_half)
    assert free(attempt, uid=uid) == "ENOTTY"
    assert confined(attempt, uid=uid) == "EPERM"
    assert confined(to_a_pipe(termios.FIONREAD), uid=uid) == "allowed"


def test_the_console_is_not_pasted_into(free: Free, confined: Confined) -> None:
    attempt = to_the_console(TIOCLINUX, SHIFT_STATE)
    if free(attempt) != "allowed":
        lack("console")
    assert confined(lambda: os.open(CONSOLE, os.O_RDWR), *AT_THE_CONSOLE) == "allowed"
    assert confined(attempt, *AT_THE_CONSOLE) == "EPERM"
    # Another request gets past the filter, to Landlock, which judges devices from ABI 5 on.
    size = to_the_console(termios.TIOCGWINSZ, bytes(8))
    assert confined(size, *AT_THE_CONSOLE) in {"allowed", "EACCES"}
