"""What the document says around its tables."""

# ruff: noqa: E501, RUF001 - prose, in the width of the documents

from __future__ import annotations

HEAD = """\
# Ways out, and what stops them

Made by `make escape-report`, which tries every technique of the tests for real; do not edit. Each technique is tried
unconfined first, then under one layer alone, then under all of them. What stops it is the error that it met. The same
techniques are then tried in other sandboxes. One file for each kernel that was looked at is in `docs/escapes`.

- **open**: the technique works. Under a single layer that says what the layer is not for; in the column *together* it is
  a known limit, and `SECURITY.md` has it.
- *own*: it works, in a namespace or on a terminal of the sandbox's own, where it reaches nothing outside.
- –: not tried, or not to be learnt from, since it does not work here unconfined either.
- *as*: who can do it unconfined, an ordinary user or only root. It is tried as that user, and so is every peer.
"""
SUITES = {
    "kernel": ("Ways out of a process", "guard landlock seccomp broker together", """\
The policy grants one folder to read, create, modify and delete in, and another one to read."""),
    "operation": ("Doing more than was granted", "landlock seccomp broker together", """\
Every operation is granted but the one named. None of the peers tells these operations apart: a folder is read-only there,
or everything is allowed in it."""),
    "guard": ("Ways round the guard in Python", "guard landlock seccomp broker together", """\
Code in one Python process. *together* are the launcher's layers without the guard. What stays open there does not leave
the process, or is a limit that `SECURITY.md` names (`stat` and its kin)."""),
    "egress": ("Ways to an address", "iptables bpf together", """\
From a sandbox of the helper to an address that no rule names, in a network of the report's own. `silent`: nothing comes
back, and nothing arrives."""),
    "egress check": ("What else must hold of egress", "iptables bpf together", ""),
}  # fmt: skip

FAIR = """\
The same techniques, each in a process that the sandbox itself started, under the strictest settings that it offers by
name for the same policy. Two things to know: a program that can be seen can be started in all of the others but systemd,
which have no rule for that; and systemd would normally give a service a user of its own, who may not signal others anyway.
Anthropic's `srt` and OpenAI's `codex sandbox` start bubblewrap with a filter and a policy of their own.
"""
SETTINGS = """\
### The settings

INSIDE may be changed, READABLE may be read.

"""
NOTHING = "–"
