"""Runs inside the machine: decides one request after the other until the power goes.

Each number is written to the console after its decision was acknowledged, so that the outside
knows what must still be there. With a number it tells which of the first so many are missing.
"""

from __future__ import annotations

import itertools
import os
import sys

from democrai_osguard import Subject
from democrai_osguard.access import AccessRequest, Operation, ResourceType
from democrai_osguard.approvals import Operator
from democrai_osguard.approvals.opening import open_service

OPERATOR = Operator("ada", super_role=True)
SUBJECT = Subject.parse("module:notes")


def request(number: int) -> AccessRequest:
    """Return the request that has this number."""
    return AccessRequest(
        SUBJECT, ResourceType.FILESYSTEM, Operation.READ, f"/srv/{number}", "sess-1"
    )


def write() -> None:
    """Decide until the power goes."""
    service = open_service()
    console = os.open("/dev/ttyS0", os.O_WRONLY | os.O_NOCTTY)
    for number in itertools.count():
        asked = service.register(request(number))
        if service.approve_permanently(asked.id, OPERATOR).applied:
            os.write(console, f"acknowledged {number}\n".encode())


def check(count: int) -> None:
    """Print the numbers that are gone."""
    service = open_service()
    gone = [n for n in range(count) if service.check(request(n)).code == "not_enabled"]
    sys.stdout.write(f"{gone}\n")


if __name__ == "__main__":
    check(int(sys.argv[1])) if len(sys.argv) > 1 else write()
