"""Targets that try to be something else: markup, terminal commands, text that runs backwards."""

from __future__ import annotations

HOSTILE_PATHS = (
    "/srv/<img src=x onerror=document.body.innerHTML='owned'>",
    "/srv/<script>window.owned=1<\\script>",
    "/srv/\x1b[2J\x1b]0;owned\x07\x1b[31mred",
    "/srv/\u202egnp.exe",
    "/srv/\u2066hidden\u2069\u200b\u00ad\ufeff",
    "/srv/line\nbreak\r\tand\x00".replace("\x00", ""),
    "/srv/\udcff\udc80 bytes",
    "/srv/\x9b31m\x85next",
    "/srv/" + "z\u0335\u0321\u0322" * 300,
    "/srv/" + "a" * 3900,
    "/srv/{{7*7}}${7*7}%s%n\"'&amp;",
    "/srv/\u2028line\u2029separators\u3000wide",
)
# What no terminal and no page may get as it is: controls, bidirectional marks, broken text.
RAW = ("\x1b", "\x07", "\x9b", "\x85", "\u202e", "\u2066", "\u200b", "\ufeff", "\r", "\udcff")
HUGE = "/srv/" + "\u202e<b>" * 25_000  # 100 kB, as only a store from elsewhere can hold it
