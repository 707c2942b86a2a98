"""What each Landlock ABI holds, in words for people. The launcher has the rights themselves."""

from __future__ import annotations

_ADDED = {
    1: "reading, writing, creating, deleting and executing files",
    2: "moves between folders",
    3: "truncation",
    4: "TCP ports",
    5: "device controls",
    6: "abstract unix sockets and signals",
    7: "audit records of denials",
    8: "all threads at once",
    9: "pathname unix sockets",
    10: "UDP",
}
NEWEST_ABI = max(_ADDED)


def landlock_words(abi: int) -> str:
    """Say what a kernel of this ABI holds and what it does not."""
    if abi < 1:
        return "nothing below Python holds files; the launcher refuses to start a command"
    held = [text for added, text in _ADDED.items() if added <= abi]
    missing = [f"{text} (ABI {added})" for added, text in _ADDED.items() if added > abi]
    words = f"the kernel holds {', '.join(held)}"
    return words if not missing else f"{words}; it does not hold {', '.join(missing)}"
