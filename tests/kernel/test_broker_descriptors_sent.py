"""Descriptors that are sent through the broker count against the limit of who sends them."""

from __future__ import annotations

import array
import os
import resource
import socket
from typing import TYPE_CHECKING

import pytest

from democrai_osguard_launcher import connections, held_socket, outgoing

if TYPE_CHECKING:
    from kernel.conftest import Confined, Free

pytestmark = pytest.mark.needs("landlock", "landlock-tcp", "seccomp", "root")

SENDER = 61234  # a user who has sent nothing yet: the kernel counts for each
LIMIT = 64
MANY = 60  # in one message
ROUNDS = 10
READ_BEFORE = (connections, held_socket, outgoing)  # what that user could not


def send_on_and_on() -> None:
    """Send the same descriptor again and again, to a socket that nobody reads."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    rights = array.array("i", [os.open(os.devnull, os.O_RDONLY)] * MANY)
    for _ in range(ROUNDS):
        ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    theirs.close()


def test_no_more_are_under_way_than_the_sender_may_have_open(
    free: Free, confined: Confined
) -> None:
    grant = ("connect", "127.0.0.1:9")
    assert free(send_on_and_on, uid=SENDER) == "ETOOMANYREFS"
    assert confined(send_on_and_on, grant, uid=SENDER) == "ETOOMANYREFS"
