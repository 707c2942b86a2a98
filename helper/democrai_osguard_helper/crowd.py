"""How much of the daemon each user may take, so that there is some left for others. Pure.

Whoever has little is served while others have much; places are kept for root, who looks after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = 0
MAX_CLIENTS: Final = 256
ROOM_FOR_ROOT: Final = 64  # connections that nobody else gets
MAX_CLIENTS_PER_USER: Final = 128
MANY: Final = 128  # connections of all but root, from which on only who has few gets another
FEW: Final = 16
MAX_BUFFERED: Final = 32 * 1024 * 1024  # of all clients together, but for what is small
MAX_BUFFERED_PER_USER: Final = 8 * 1024 * 1024
SMALL: Final = 64 * 1024  # bytes of an unfinished frame that everybody may leave with us


# Each endpoint costs about a kilobyte, in the daemon and in the maps that count as its memory: all
# together stay well below what its unit gives it, also while a new daemon takes them over.
MAX_ENDPOINTS: Final = 196_608
MAX_ENDPOINTS_PER_USER: Final = 131_072
# The same for calls that wait until their names are answered: they are held meanwhile.
MAX_WAITING: Final = 98_304
MAX_WAITING_PER_USER: Final = 49_152
FEW_ENDPOINTS: Final = 256  # that every call may bring
# Addresses that names stand for, opened or not: whoever answers for a name says how many.
MAX_KNOWN: Final = 262_144
MAX_KNOWN_PER_USER: Final = 65_536


def has_room(more: int, uid: int, taken: Mapping[int, int]) -> bool:
    """Tell whether so much may be added, from how much the sandboxes of each user take."""
    mine, everybody = taken.get(uid, 0), sum(taken.values())
    return mine + more <= MAX_ENDPOINTS_PER_USER and everybody + more <= MAX_ENDPOINTS


def may_be_known(more: int, mine: int, everybody: int) -> bool:
    """Tell whether names may stand for so many more addresses, from how many are known already."""
    return mine + more <= MAX_KNOWN_PER_USER and everybody + more <= MAX_KNOWN


def may_wait_for_names(more: int, uid: int, waiting: Mapping[int, int]) -> bool:
    """Tell whether a call may wait with so many endpoints, from how many wait of each user."""
    if more <= FEW_ENDPOINTS:
        return True
    mine, everybody = waiting.get(uid, 0), sum(waiting.values())
    return mine + more <= MAX_WAITING_PER_USER and everybody + more <= MAX_WAITING


def has_place(uid: int, clients: Mapping[int, int]) -> bool:
    """Tell whether a user gets another connection, from how many each user has."""
    mine, everybody = clients.get(uid, 0), sum(clients.values())
    if uid == ROOT:
        return mine < MAX_CLIENTS_PER_USER and everybody < MAX_CLIENTS
    others = everybody - clients.get(ROOT, 0)
    most = MAX_CLIENTS - ROOM_FOR_ROOT if mine < FEW else MANY
    return mine < MAX_CLIENTS_PER_USER and others < most and everybody < MAX_CLIENTS


def may_wait(size: int, uid: int, buffered: Mapping[int, int]) -> bool:
    """Tell whether an unfinished frame may wait, from how much each user has waiting."""
    if size <= SMALL:
        return True
    mine, everybody = buffered.get(uid, 0), sum(buffered.values())
    return mine <= MAX_BUFFERED_PER_USER and everybody <= MAX_BUFFERED
