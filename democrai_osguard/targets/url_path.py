"""Paths and queries of URLs in normal form, split on segment boundaries.

Escapes of plain characters are resolved, so are dot segments. Where one server would see a dot
segment and another would not, the path is refused.
"""

from __future__ import annotations

import re
import unicodedata

from democrai_osguard.errors import TargetError

Segments = tuple[str, ...]

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_IN_PATH = _UNRESERVED | frozenset("!$&'()*+,;=:@/%")
_IN_QUERY = _IN_PATH | frozenset("?")
# A second, longer spelling of a character: valid nowhere, decoded by some servers.
_OVERLONG = re.compile(r"%(?:C[01]|E0%[89]|F0%8)", re.IGNORECASE)
_OVERLONG_DOT = re.compile(r"%(?:C0%AE|E0%80%AE|F0%80%80%AE)", re.IGNORECASE)
_SEPARATORS = re.compile(r"[/\\]")
_TAIL = re.compile(r"[;?#\s].*", re.DOTALL)
# A server that decodes more often than this is beyond reason.
_DECODINGS = 4


def parse_url_path(text: str, value: object) -> Segments:
    """Return the segments of a URL's path; the root is empty, a final slash an empty segment."""
    segments: list[str] = []
    parts = _normal_escapes(text, _IN_PATH, value).split("/")[1:]
    for part in parts:
        if part == ".." and segments:
            segments.pop()
        elif part not in {".", ".."}:
            _refuse_hidden_dots(part, value)
            segments.append(part)
    if parts and parts[-1] in {".", ".."}:
        segments.append("")
    return () if segments == [""] else tuple(segments)


def parse_query(text: str, value: object) -> str | None:
    """Return a query in normal form; an empty one is none."""
    return _normal_escapes(text, _IN_QUERY, value) or None


def beneath(segments: Segments) -> Segments:
    """Return the segments that a rule for this path compares: a final slash says nothing."""
    return segments[:-1] if segments and not segments[-1] else segments


def folded(segments: Segments) -> Segments:
    """Return the path as the laxest server reads it. Denials compare this, grants never do."""
    parts = (part for segment in segments for part in _SEPARATORS.split(_decoded(segment)))
    return tuple(part for part in parts if part)


def _normal_escapes(text: str, plain: frozenset[str], value: object) -> str:
    if _BAD_ESCAPE.search(text):
        raise TargetError(value, "a '%' that starts no escape")
    if "%00" in text:
        raise TargetError(value, "contains an escaped NUL")
    if _OVERLONG.search(text):
        raise TargetError(value, "contains an overlong escape, a dot segment to some servers")
    resolved = _ESCAPE.sub(_resolved, text)
    return "".join(char if char in plain else _escaped(char) for char in resolved)


def _resolved(escape: re.Match[str]) -> str:
    char = chr(int(escape.group(1), 16))
    return char if char in _UNRESERVED else escape.group().upper()


def _escaped(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


def _decoded(text: str) -> str:
    """Return the text after all the decoding that a server might do, wide characters folded."""
    for _ in range(_DECODINGS):
        text = _OVERLONG_DOT.sub(".", text)
        once = _ESCAPE.sub(lambda escape: chr(int(escape.group(1), 16)), text)
        if once == text:
            break
        text = once
    characters = text.encode("latin-1", "replace").decode("utf-8", "replace")
    return unicodedata.normalize("NFKC", characters)


def _refuse_hidden_dots(segment: str, value: object) -> None:
    # Servers disagree on %2F, on %5C, on escapes of escapes, on wide forms of a dot, and on what
    # follows a ';' or an escaped '?', '#' or space.
    for part in _SEPARATORS.split(_decoded(segment)):
        if _TAIL.sub("", part) in {".", ".."}:
            raise TargetError(value, f"{segment!a} is a dot segment to some servers only")
