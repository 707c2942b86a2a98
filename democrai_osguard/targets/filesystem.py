"""File system targets: where an object really is, as an absolute path without links or dots.

Resolving reads links and nothing else. It follows the kernel's walk, and refuses what the kernel
would refuse or what could mean another place by the time it exists.
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

from democrai_osguard.access import Operation
from democrai_osguard.directories import TOKENS
from democrai_osguard.errors import TargetError, UnsafePath

if TYPE_CHECKING:
    from collections.abc import Iterable

PATH_LIMIT = 4096  # PATH_MAX: the kernel takes no longer name, the final NUL included
LINK_LIMIT = 40  # MAXSYMLINKS: so many links in one walk, then the kernel says ELOOP

# These act on the name itself, so that only its parent is resolved.
NAME_OPERATIONS = frozenset({Operation.CREATE, Operation.DELETE})

# What a process's magic links name may lie under another root or another set of mounts.
_ANOTHER_PROCESS = re.compile(
    r"/proc/[0-9]+/(?:task/[0-9]+/)?(?:root|cwd|exe|fd/[0-9]+|map_files/[^/]+)\Z"
)
_OWN_OBJECT = re.compile(r"/proc/self/(?:task/[0-9]+/)?(?:fd|ns)/[^/]+\Z")
_TOKEN = re.compile(r"\{[^/{}]*\}")


def normalize_path(
    text: str | bytes | os.PathLike[str],
    *,
    operation: str | None = None,
    base: str | os.PathLike[str] | None = None,
) -> str:
    """Return the normal form of a declared path; raise TargetError where there is none."""
    path = expand_path(_decoded(text), base)
    return resolve_path(path, follow=operation not in NAME_OPERATIONS)


def expand_path(text: str, base: str | os.PathLike[str] | None = None) -> str:
    """Return a declared path as an absolute one: `~`, tokens and the manifest's folder filled in.

    A relative path without a base is an error: the working directory never counts.
    """
    path = text
    if text.startswith("~"):
        path = _expanded_home(text)
    elif token := _TOKEN.match(text):
        path = _expanded_token(text, token.group())
    if not path.startswith("/"):
        if base is None:
            raise TargetError(text, "a relative path, and no folder that it is relative to")
        path = f"{_decoded(base)}/{path}"
    if not path.startswith("/"):
        raise TargetError(text, "does not lead to an absolute path")
    if len(os.fsencode(path)) >= PATH_LIMIT:
        raise TargetError(text, f"longer than the kernel's {PATH_LIMIT} bytes")
    return path


def resolve_path(path: str, *, follow: bool = True) -> str:
    """Return where an absolute path really leads; raise UnsafePath where that cannot be said.

    Without `follow` the last name stands for itself, as in unlink or lstat. Behind a link with a
    trailing slash the kernel looks all the same, and the link is then not the last part here.
    """
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
            raise UnsafePath(path, "too many symbolic links, or a loop of them")
        pending.extend(leads_to.split("/")[::-1])
        place = "" if leads_to.startswith("/") else place.rpartition("/")[0]
    return place or "/"


def is_normal_path(text: str) -> bool:
    """Tell whether a path has the normal form, without looking at the file system."""
    return text == "/" or (
        text.startswith("/")
        and "\0" not in text
        and not {"", ".", ".."}.intersection(text.split("/")[1:])
        and _stands_for_bytes(text)
    )


def path_covers(rule_path: str, path: str) -> bool:
    """Tell whether a normal path is the rule's path or lies beneath it."""
    return path == rule_path or path.startswith("/" if rule_path == "/" else f"{rule_path}/")


def broad_roots() -> Iterable[str]:
    """Return roots that hand out far more than a single program needs."""
    home = os.path.expanduser("~")
    return ("/", "/home", "/root", os.path.realpath(home))


def is_broad(path: str) -> bool:
    """Tell whether a normal path is a broad root: `/`, `/home`, or somebody's home."""
    return path in broad_roots() or os.path.dirname(path) == "/home"


def _decoded(text: str | bytes | os.PathLike[str]) -> str:
    try:
        path = os.fspath(text)
    except TypeError as error:
        raise TargetError(text, "a path is text, bytes or a path object") from error
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not path:
        raise TargetError(path, "empty; name a path")
    if "\0" in path:
        raise TargetError(path, "contains a NUL byte")
    if not _stands_for_bytes(path):
        raise TargetError(path, "contains a surrogate that stands for no byte")
    return path


def _stands_for_bytes(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _expanded_home(text: str) -> str:
    path = os.path.expanduser(text)
    if path == text:
        raise TargetError(text, "no such user's home; write ./~… for a file of that name")
    if not path.startswith("/") or os.environ.get("HOME") == "":
        raise TargetError(text, "the home folder has no absolute path")
    return path


def _expanded_token(text: str, token: str) -> str:
    folder = TOKENS.get(token)
    rest = text[len(token) :]
    if folder is None:
        raise TargetError(text, f"unknown token {token}; known: {', '.join(TOKENS)}")
    if rest and not rest.startswith("/"):
        raise TargetError(text, f"a token stands for a whole folder: {token}/…")
    path = folder() + rest
    if not path.startswith("/"):
        raise TargetError(text, f"{token} has no absolute path")
    return path


def _parent(path: str, place: str) -> str:
    # The kernel climbs only from a folder that is there: what does not exist yet may become a
    # link to anywhere before the path is used.
    if place and not os.path.isdir(place):
        raise UnsafePath(path, f"climbs with '..' from {place!a}, which is not a folder")
    return place.rpartition("/")[0]


def _own_process(place: str, part: str) -> str:
    # One name for this process, whatever its number is: rules about it survive a fork.
    if place == "/proc" and part == str(os.getpid()):
        part = "self"
    return f"{place}/{part}"


def _link(path: str, place: str) -> str | None:
    """Return what the link at this place contains, None where there is no link to follow."""
    if place == "/proc/self":
        return None
    if _ANOTHER_PROCESS.match(place):
        raise UnsafePath(path, f"leads through {place!a}, which belongs to another process")
    try:
        leads_to = os.readlink(place)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnsafePath(path, "a loop of symbolic links") from error
        # EINVAL: no link. The others: nothing that this process could reach by this name.
        return None
    # A pipe, a socket, a namespace: an object without a name keeps its place under /proc.
    named = leads_to.startswith("/") and not leads_to.startswith("/memfd:")
    nameless = _OWN_OBJECT.match(place) and not named
    return None if nameless else leads_to
