"""Paths that only the interpreter reports: judged by their names, for the hook's side."""

from __future__ import annotations

from posix import readlink
from typing import Any

from democrai_osguard.guard.sealed.answers import ASK, about_path, covered, refusal
from democrai_osguard.guard.sealed.core import State, current, text_of
from democrai_osguard.guard.sealed.files import check_gain, there
from democrai_osguard.guard.sealed.opening import (
    O_ACCMODE,
    O_CREAT,
    O_NOFOLLOW,
    O_RDWR,
    O_WRONLY,
    as_refusal,
    check,
    exists,
    needed,
    place_of,
)

ODD = "a path that is neither text nor bytes"
PAST_WRAPPER = "it is opened by C code, past `open`, where names can change"
_STANDARD = 2  # 0, 1 and 2 are everybody's


def event_path(state: State, operation: str, path: object, *, follow: bool) -> Warning | None:
    """Judge a path of an audit event that no wrapper has seen: the hook's side."""
    try:
        text = _descriptor_path(path) if type(path) is int else text_of(path)
        if text is None and path is not None:
            return refusal(state, "sandbox_filesystem_denied", operation, ODD)
        if not text or (type(path) is int and not text.startswith("/")):
            return None
        asked = "create" if operation == "write" else operation
        place = place_of(state, asked, text, follow=follow)
        if operation == "write":
            operation = "modify" if there(place) else "create"
        return about_path(state, operation, place)
    except Warning as error:
        return as_refusal(error, state)
    except OSError:
        return None


def _descriptor_path(descriptor: int) -> str:
    return readlink(f"/proc/self/fd/{descriptor}").removesuffix(" (deleted)")


def event_gain(state: State, call_name: str, source: object, name: object) -> Warning | None:
    """Judge a new name of a file, both judged by themselves already: nothing is gained by it."""
    try:
        paths = [text_of(each) or "" for each in (source, name)]
        places = [place_of(state, "create", each, follow=False) for each in paths]
        check_gain(state, call_name, *places)
    except Warning as error:
        return as_refusal(error, state)
    return None


def event_database(state: State, database: object) -> Warning | None:
    """Judge the file behind a SQLite database, which may be a name, bytes or a `file:` URI."""
    text = text_of(database)
    if text is None:
        return refusal(state, "sandbox_filesystem_denied", "read", ODD)
    if text in {"", ":memory:"}:
        return None
    mode = None
    if text.startswith("file:"):
        path, _, query = text[5:].partition("#")[0].partition("?")
        mode = _mode(query)
        if mode == "memory" or path in {"", ":memory:"}:
            return None
        text = _unescaped(path)
    answer = event_path(state, "read", text, follow=True)
    if answer is None and mode != "ro":
        answer = event_path(state, "write", text, follow=True)
    return answer


def _mode(query: str) -> str | None:
    """Return the one mode that a URI asks for; None where it asks for none, or for several."""
    modes = [
        value
        for name, _, value in (part.partition("=") for part in query.split("&"))
        if name == "mode"
    ]
    return modes[0] if len(modes) == 1 and "%" not in query else None


def _unescaped(path: str) -> str:
    """Return the path of a `file:` URI as SQLite reads it."""
    path = path.removeprefix("//localhost") if path.startswith("//") else path
    path = path[2:] if path.startswith("///") else path
    first, *parts = path.split("%")
    raw = first.encode("utf-8", "surrogateescape")
    for part in parts:
        try:
            raw += bytes([int(part[:2], 16)]) + part[2:].encode("utf-8", "surrogateescape")
        except ValueError:
            raw += b"%" + part.encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "surrogateescape")


def check_call(operation: str, path: Any) -> Warning | None:
    """Judge one path for a call that opens it below Python."""
    state = current()
    if state is None or path is None:
        return None
    return event_path(state, text_of(operation) or "", path, follow=True)


def event_open(state: State, path: object, mode: object, flags: object) -> Warning | None:
    """Judge an `open` that no wrapper has seen: the hook's side.

    What C code opens by mode is reported without flags.
    """
    number = flags if type(flags) is int else O_RDWR | O_CREAT
    if type(mode) is str and not number & O_ACCMODE:
        number |= _flags_of(mode)
    try:
        _judge_event(state, path, number)
    except Warning as answer:
        return as_refusal(answer, state)
    return None


def _flags_of(mode: str) -> int:
    flags = O_RDWR if "+" in mode else O_WRONLY if set(mode) & set("wax") else 0
    return flags | O_CREAT if set(mode) & set("wax") else flags


def _judge_event(state: State, path: object, flags: int) -> None:
    if type(path) is int:
        _judge_descriptor(state, path, flags)
        return
    text = text_of(path)
    if text is None:
        # An object that names a path may name another one the next time it is asked.
        raise refusal(state, "sandbox_filesystem_denied", needed(flags, exists=True)[0], ODD)
    if text:
        follow = not flags & O_NOFOLLOW
        place = place_of(state, needed(flags, exists=False)[0], text, follow=follow)
        present = not flags & O_CREAT or exists(place)
        operations = needed(flags, exists=present)
        check(state, operations, place)
        # By now a thread may have put a link there, and nobody looks at what is opened here.
        if ASK or covered(state.roots.get("create", frozenset()), place):
            raise refusal(state, "sandbox_filesystem_denied", operations[0], place, PAST_WRAPPER)


def _judge_descriptor(state: State, descriptor: int, flags: int) -> None:
    """Judge a descriptor that is made into a file: what it is open on counts."""
    if descriptor <= _STANDARD:
        return
    try:
        place = readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return
    if place.startswith("/"):
        place = place.removesuffix(" (deleted)")
        operations = needed(flags & O_ACCMODE, exists=True)
        check(state, operations, place_of(state, operations[0], place, follow=False))
