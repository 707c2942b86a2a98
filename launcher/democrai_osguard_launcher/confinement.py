"""The last steps before exec: split off the supervisor, enforce, try it, write the receipt."""

# ruff: noqa: PLC0415 - what most launches do not need is imported where it is needed

from __future__ import annotations

import os

from . import limits, receipt
from .enforcement import enforce
from .errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .options import Options
    from .plan import Plan
    from .supervision import Channel

_UMASK = 0o077  # what the command creates is its user's alone
_RECEIPT_MODE = 0o600


def confine(plan: Plan, options: Options) -> None:
    """Return in the process that is to become the command, confined and tried."""
    record = _open_receipt(options.receipt)
    if record is not None:
        import json  # now: once confined, this process can no longer read Python's library
    channel = _split(plan)
    candidates = receipt.look_around(plan)
    ours = (number for number in (record, candidates.program) if number is not None)
    enforce(plan, {*options.keep_fds, *ours}, channel)
    trials = receipt.attempt(plan, candidates)
    if record is not None:
        text = json.dumps(receipt.document(plan, trials), indent=2)
        os.write(record, text.encode())
    os.umask(_UMASK)
    limits.apply(options.limits)


def _split(plan: Plan) -> Channel | None:
    if not plan.brokered and not _has_terminal():
        return None
    from . import supervision

    return supervision.split(plan)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _open_receipt(path: str | None) -> int | None:
    if path is None:
        return None
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return os.open(path, flags, _RECEIPT_MODE)
    except OSError as error:
        raise UsageError(f"--receipt: {path}: {error.strerror}") from error
