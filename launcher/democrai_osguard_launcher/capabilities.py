"""What root keeps when it is confined. An ordinary user has none of these to begin with."""

from __future__ import annotations

# Each of these widens nothing that Landlock has judged: a path that is closed stays closed.
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
NUMBERS = frozenset(number for number, _, _ in KEPT)
