"""What the launcher says and how it exits when it does not become the command."""

from __future__ import annotations


class Exit:
    """Codes of democrai-launch itself; any other code is the command's own."""

    USAGE = 64
    NOT_ENFORCED = 125  # refused to run the command unprotected
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127


class LaunchError(Exception):
    """Nothing was run. The text is one line, for a person."""

    exit_code = Exit.NOT_ENFORCED


class UsageError(LaunchError):
    """The options, DEMOCRAI_ACCESS or the manifest cannot be understood."""

    exit_code = Exit.USAGE


class NotEnforced(LaunchError):
    """The kernel cannot hold the command to its rules as strictly as was asked."""


class NotExecutable(LaunchError):
    """The command exists and cannot be started."""

    exit_code = Exit.NOT_EXECUTABLE


class NotFound(LaunchError):
    """There is no such command."""

    exit_code = Exit.NOT_FOUND


def one_line(text: str) -> str:
    """Return the text as one line, whatever a path in it contains.

    What is not printable is shown as Python would.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
