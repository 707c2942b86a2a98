"""Where a path really leads: the same walk as `targets.filesystem`, remembered for a moment.

What is remembered is where folders are, each with the count of changes at which it was seen. The
guard's own links, renames and changes of directory raise the count, as does each second: what was
seen at another count is not known. So a look that a rename overtook never counts.
"""

from __future__ import annotations

from errno import ELOOP
from posix import getcwd, getpid, readlink, stat
from re import compile as pattern
from stat import S_ISDIR
from time import monotonic

LINK_LIMIT = 40
_LIFETIME = 0.4  # seconds
_ROOM = 8192
_FOLDERS: dict[str, tuple[str, int]] = {}
CHANGES = [0]  # how often something changed where names lead
UNTIL = [0.0]  # when the count grows by itself
MOVES = [0]  # how many such calls are under way
_PLAIN = pattern(r"(?:/[^/\0]+)+\Z").match
_DOTS = pattern(r"/\.\.?(?:/|\Z)").search
_ANOTHER_PROCESS = pattern(
    r"/proc/[0-9]+/(?:task/[0-9]+/)?(?:root|cwd|exe|fd/[0-9]+|map_files/[^/]+)\Z"
).match


def forget() -> None:
    """Drop what is remembered: something may lead elsewhere now."""
    CHANGES[0] += 1


def settled() -> int:
    """Return the count of changes as of now."""
    now = monotonic()
    if now > UNTIL[0]:
        forget()
        UNTIL[0] = now + _LIFETIME
    return CHANGES[0]


def moving(change: int) -> None:
    """Note that a call that changes where names lead begins (1) or ends (-1)."""
    MOVES[0] += change
    forget()


def absolute(path: str | bytes) -> str:
    """Return the path as text from the root, as written."""
    text = path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")
    return text if text.startswith("/") else f"{getcwd()}/{text}"


def resolve(path: str, *, follow: bool = True) -> str:
    """Return where an absolute path leads; raise Warning where that cannot be said."""
    if not _PLAIN(path) or _DOTS(path):
        return _walk(path, follow=follow)
    parent, _, name = path.rpartition("/")
    folder = _folder(parent)
    place = _own_process(folder, name)
    if not follow or _link(path, place) is None:
        return place
    return _walk(place, follow=True)


def is_there(place: str) -> bool:
    """Tell whether anything is at a place, as far as can be seen from here."""
    try:
        stat(place)
    except OSError:
        return False
    return True


def near(path: str) -> str | None:
    """Return a path with its folder resolved and its own name as it is, None where that is hard."""
    if not _PLAIN(path) or _DOTS(path):
        return None
    parent, _, name = path.rpartition("/")
    try:
        folder = _folder(parent)
    except Warning:
        return None
    return None if folder.startswith("/proc") else f"{folder}/{name}"


def _folder(path: str) -> str:
    change = settled()
    known = _FOLDERS.get(path)
    if known is not None and known[1] == change:
        return known[0]
    place = "" if path == "" else _walk(path, follow=True).rstrip("/")
    if not MOVES[0]:
        if len(_FOLDERS) > _ROOM:
            _FOLDERS.clear()
        _FOLDERS[path] = place, change
    return place


def _walk(path: str, *, follow: bool) -> str:
    follow = follow or path.endswith(("/", "/."))
    pending = path.split("/")[::-1]
    place, links = "", 0
    while pending:
        part = pending.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            place = _parent(path, place)
            continue
        place = _own_process(place, part)
        if not pending and not follow:
            break
        leads_to = _link(path, place)
        if leads_to is None:
            continue
        links += 1
        if links > LINK_LIMIT:
            raise Warning(path, "too many symbolic links, or a loop of them")
        pending.extend(leads_to.split("/")[::-1])
        place = "" if leads_to.startswith("/") else place.rpartition("/")[0]
    return place or "/"


def _parent(path: str, place: str) -> str:
    if place and not _is_folder(place):
        raise Warning(path, f"climbs with '..' from {place!a}, which is not a folder")
    return place.rpartition("/")[0]


def _is_folder(place: str) -> bool:
    try:
        return S_ISDIR(stat(place).st_mode)
    except OSError:
        return False


def _own_process(place: str, part: str) -> str:
    if place == "/proc" and part.isdigit() and int(part) == getpid():
        part = "self"
    return f"{place}/{part}"


def _link(path: str, place: str) -> str | None:
    if place == "/proc/self":
        return None
    if place.startswith("/proc/") and _ANOTHER_PROCESS(place):
        raise Warning(path, f"leads through {place!a}, which belongs to another process")
    try:
        leads_to = readlink(place)
    except OSError as error:
        if error.errno == ELOOP:
            raise Warning(path, "a loop of symbolic links") from error
        return None
    if leads_to.startswith("/") or not place.startswith("/proc/") or place == "/proc/thread-self":
        return leads_to
    return None
