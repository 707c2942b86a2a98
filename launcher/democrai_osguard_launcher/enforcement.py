"""Carries the plan out, in the one order that works. From here on rights are only given up."""

from __future__ import annotations

import os
import stat

from . import capabilities, kernel, landlock, seccomp
from .errors import NotEnforced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .plan import PathRights, Plan
    from .supervision import Channel

_CAPABILITIES = 64  # as many as the kernel's masks have room for
_FIRST_OWN_DESCRIPTOR = 3


def enforce(plan: Plan, keep: Iterable[int] = (), channel: Channel | None = None) -> None:
    """Confine this process for good; raise NotEnforced when a layer that exists does not hold.

    Descriptors above 2 are closed but for those in `keep`. The channel takes the listener of the
    broker out, where the plan needs one; without a channel what would be brokered is refused.
    """
    brokered = plan.brokered if channel else ()
    try:
        # Read while files can still be read.
        filters = _filters(plan, brokered) if plan.seccomp else ()
        kernel.set_no_new_privs()  # first: Landlock and seccomp need it from those who are not root
        _drop_capabilities()
        if plan.abi:
            _enter_landlock(plan)
        _close_others({*keep, *((channel.descriptor,) if channel else ())})
        for program in filters:  # last: they refuse some of the calls above
            kernel.load_filter(program)
        if channel and brokered:
            waiting = seccomp.broker_program(os.uname().machine, brokered)
            channel.hand_out(kernel.load_listening_filter(waiting))
    except OSError as error:
        raise NotEnforced(f"{error.filename}: {error.strerror}") from error


def _close_others(keep: set[int]) -> None:
    first = _FIRST_OWN_DESCRIPTOR
    for number in sorted(number for number in keep if number >= first):
        if number > first:
            kernel.close_range(first, number - 1)
        first = number + 1
    kernel.close_range(first)


def _drop_capabilities() -> None:
    kernel.clear_ambient_capabilities()
    for number in range(_CAPABILITIES):
        # Only root may shrink the set, and only root would get anything from it at exec.
        if number not in capabilities.NUMBERS and os.geteuid() == 0:
            _drop(number)


def _drop(number: int) -> None:
    if kernel.in_bounding_set(number):
        kernel.drop_from_bounding_set(number)


def _enter_landlock(plan: Plan) -> None:
    ruleset = kernel.create_ruleset(*plan.handled)
    allow_paths(ruleset, plan.paths)
    for port, rights in plan.ports:
        kernel.allow_port(ruleset, port, rights)
    kernel.restrict_self(ruleset)


def allow_paths(ruleset: int, paths: Iterable[PathRights]) -> None:
    """Add what exists to the ruleset. What vanished since the plan opens nothing."""
    for path, rights, _ in paths:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= landlock.FILE_RIGHTS  # noqa: PLW2901 - what the descriptor is, decides
        if rights:
            kernel.allow_path(ruleset, descriptor, rights)
        os.close(descriptor)


def _filters(plan: Plan, brokered: tuple[str, ...]) -> tuple[bytes, ...]:
    machine = os.uname().machine
    arguments = seccomp.argument_program(
        machine,
        plan.sockets,
        truncate_is_seen=bool(plan.handled.filesystem & landlock.TRUNCATE),
        brokered=brokered,
    )
    return arguments, seccomp.call_program(machine)
