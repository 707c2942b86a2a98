"""Carries the plan out, in the one order that works. From here on rights are only given up."""

# ruff: noqa: PLC0415 - what most launches do not need is imported where it is needed

from __future__ import annotations

import errno
import os

from . import kernel, landlock, stored_programs
from .errors import NotEnforced
from .plan import DECLARED
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .plan import PathRights, Plan
    from .supervision import Channel

# What root keeps, and why. An ordinary user has none of these to begin with, and none of them
# widens what Landlock has judged: a path that is closed stays closed.
KEPT: tuple[tuple[int, str, str], ...] = (
    (0, "chown", "give files away; the filter still judges the call"),
    (1, "dac_override", "root's files and folders of other users look as they always do"),
    (2, "dac_read_search", "likewise; open_by_handle_at, its other use, is refused"),
    (3, "fowner", "likewise"),
    (4, "fsetid", "likewise"),
    (5, "kill", "signals; Landlock keeps them inside"),
    (6, "setgid", "programs that start as root in order to become somebody else"),
    (7, "setuid", "likewise"),
    (10, "net_bind_service", "a port below 1024; Landlock and the filter judge the socket"),
)
CAPABILITIES = frozenset(number for number, _, _ in KEPT)
_MOST_CAPABILITIES = 64  # as many as the kernel's masks have room for
FIRST_OWN_DESCRIPTOR = 3
OWN_FOLDER = "/proc/self"  # another one in each process, so that only the confined one can name it


class Programs(Record):
    """The seccomp programs of a plan that depend on it."""

    arguments: bytes | None  # judges arguments; None without seccomp
    waiting: bytes | None  # makes calls wait for the broker


class Restrictions(Record):
    """All that can be made ready before the process that will be confined exists."""

    plan: Plan
    ruleset: int | None  # a descriptor; None where there is no Landlock
    own_folder: tuple[PathRights, ...]  # what only the confined process itself can open
    programs: Programs
    vanished: tuple[str, ...] = ()  # what the rules name, and was there when the plan was made


def assemble(plan: Plan, *, supervised: bool, also: str | None = None) -> Programs:
    """Assemble the programs. Pure; without a supervisor what would be brokered is refused.

    With a companion it sees more calls than must be brokered: also those of this kind.
    """
    brokered = plan.brokered if supervised else ()
    if not brokered and not also:
        return Programs(argument_program(plan, ()) if plan.seccomp else None, waiting=None)
    from . import seccomp

    waiting = (*brokered, also) if also else brokered
    left_out = seccomp.TRACED_CALLS if also == seccomp.TRACE else ()
    if also == seccomp.HELD:
        brokered = (*brokered, "metadata")
    machine = os.uname().machine
    return Programs(
        arguments=argument_program(plan, brokered, left_out) if plan.seccomp else None,
        waiting=seccomp.broker_program(machine, waiting),
    )


def prepare(plan: Plan, programs: Programs) -> Restrictions:
    """Open the roots, while files can still be read."""
    ruleset, vanished = _ruleset(plan) if plan.abi else (None, ())
    own_folder = tuple(entry for entry in plan.paths if entry.path == OWN_FOLDER)
    return Restrictions(plan, ruleset, own_folder, programs, vanished)


def enforce(
    restrictions: Restrictions, keep: Iterable[int] = (), channel: Channel | None = None
) -> None:
    """Confine this process for good; raise NotEnforced when a layer that exists does not hold.

    What `enforce_always` does comes first. Descriptors above 2 are closed but for those in `keep`.
    The channel takes the listener of the broker out.
    """
    try:
        if restrictions.ruleset is not None:
            _allow_paths(restrictions.ruleset, restrictions.own_folder)
            flags = landlock.entry_flags(restrictions.plan.abi)
            kernel.restrict_self(restrictions.ruleset, flags)
        close_others({*keep, *((channel.descriptor,) if channel else ())})
        arguments, waiting = restrictions.programs
        if arguments is not None:  # last: it refuses some of the calls above
            kernel.load_filter(arguments)
        if channel and waiting:
            channel.hand_out(kernel.load_listening_filter(waiting))
        if channel:
            channel.close()
    except OSError as error:
        raise NotEnforced(f"{error.filename}: {error.strerror}") from error


def enforce_always(*, has_seccomp: bool) -> None:
    """Give up what no command gets, whatever its rules: once in a process and all its forks.

    No exec adds a right from here on, which Landlock and seccomp need from ordinary users.
    """
    try:
        kernel.set_no_new_privs()
        _drop_capabilities()
        if has_seccomp:
            kernel.load_filter(stored_programs.call_program(os.uname().machine))
    except OSError as error:
        raise NotEnforced(f"{error.filename}: {error.strerror}") from error


def _drop_capabilities() -> None:
    kernel.clear_ambient_capabilities()
    acts_as, really = os.geteuid(), os.getuid()
    if acts_as and really:  # only root may shrink the set, and only root would gain by it at exec
        return
    if acts_as:
        raise NotEnforced("refused: root that acts as somebody else could become root again")
    for number in range(_MOST_CAPABILITIES):
        if number not in CAPABILITIES and not kernel.drop_from_bounding_set(number):
            return


def close_others(keep: set[int]) -> None:
    """Close every descriptor above 2 but for these."""
    for first, last in gaps(keep):
        kernel.close_range(first, last)


def gaps(keep: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last descriptor of each range above 2 that has none of these."""
    first = FIRST_OWN_DESCRIPTOR
    for number in sorted(number for number in keep if number >= first):
        if number > first:
            yield first, number - 1
        first = number + 1
    yield first, kernel.LAST_DESCRIPTOR


def _ruleset(plan: Plan) -> tuple[int, tuple[str, ...]]:
    ruleset = kernel.create_ruleset(*plan.handled)
    paths = (entry for entry in plan.paths if entry.path != OWN_FOLDER)
    vanished = [entry.path for entry in _allow_paths(ruleset, paths) if entry.why == DECLARED]
    for port, rights in plan.ports:
        kernel.allow_port(ruleset, port, rights)
    return ruleset, tuple(vanished)


def _allow_paths(ruleset: int, paths: Iterable[PathRights]) -> list[PathRights]:
    """Add what exists to the ruleset, and return the rest, which opens nothing."""
    vanished = []
    for entry in paths:
        path, rights, _ = entry
        if not rights:  # none that this kernel knows
            continue
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            vanished.append(entry)
            continue
        try:
            kernel.allow_path(ruleset, descriptor, rights)
        except OSError as error:
            _allow_file(ruleset, descriptor, rights, error)
        os.close(descriptor)
    return vanished


def _allow_file(ruleset: int, descriptor: int, rights: int, error: OSError) -> None:
    """Try again with a file's rights: the kernel knows what it is, and refuses it a folder's."""
    left = rights & landlock.FILE_RIGHTS
    if error.errno != errno.EINVAL or left == rights:
        raise error
    if left:
        kernel.allow_path(ruleset, descriptor, left)


def argument_program(
    plan: Plan, brokered: tuple[str, ...], left_out: tuple[str, ...] = ()
) -> bytes:
    """Return the program that judges arguments under this plan."""
    machine, sockets = os.uname().machine, plan.sockets
    truncate_is_seen = bool(plan.handled.filesystem & landlock.TRUNCATE)
    is_plain = truncate_is_seen and not brokered and not left_out
    if is_plain and sockets in stored_programs.PLAIN_ARGUMENTS:
        return stored_programs.argument_program(machine, sockets)
    from . import seccomp

    return seccomp.argument_program(
        machine, sockets, truncate_is_seen=truncate_is_seen, brokered=brokered, left_out=left_out,
        listens=not plan.by_address,  # the helper holds what goes out, and answers whoever comes
    )  # fmt: skip
