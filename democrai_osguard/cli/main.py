"""`democrai-osguard`: the entry point, and how errors become exit codes."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from difflib import get_close_matches
from typing import Any

import click

from democrai_osguard.cli.exits import Exit
from democrai_osguard.cli.output import printable
from democrai_osguard.errors import OsGuardError

# Each command is a file of this package with a command of the same name, loaded when it is used.
COMMANDS = (
    "approvals",
    "audit",
    "demo",
    "explain",
    "helper",
    "learn",
    "manifest",
    "requests",
    "seccomp",
    "serve",
    "status",
    "why",
)


class _Commands(click.Group):
    """The commands by name. One command does not pay for the imports of another."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - likewise
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"democrai_osguard.cli.{cmd_name}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)  # noqa: S101 - for the type checker
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command as click does, which would compare a misspelt one to those loaded."""
        near = get_close_matches(args[0], COMMANDS, n=1)
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{near[0]}'?", ctx) from error


# What a write to a full disk, quota or device ends in. Code of ours that writes elsewhere says so.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="democrai-osguard")
@click.option("--json", "as_json", is_flag=True, help="For machines; also behind the command.")
@click.pass_context
def main(ctx: click.Context, *, as_json: bool) -> None:
    """See, check and decide what code that is not fully trusted may touch."""
    name = ctx.invoked_subcommand
    command = main.get_command(ctx, name) if as_json and name else None
    if name and command:
        ctx.default_map = {name: _in_json(command)}


def _in_json(command: click.Command) -> dict[str, Any]:
    """Return what is given to a command and those beneath it."""
    if isinstance(command, click.Group):
        return {name: _in_json(each) for name, each in command.commands.items()}
    return {"as_json": True}


def run() -> None:
    """Run the command line; a mistake of the caller is one line and exit code 64."""
    try:
        code = main.main(prog_name="democrai-osguard", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        _fail(error.format_message())
    except click.ClickException as error:
        _fail(f"democrai-osguard: {error.format_message()}")
    except OsGuardError as error:
        _fail(f"democrai-osguard: {error}")
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)  # as a shell reports an interrupted command
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python tries, and says it, once more
        _fail(f"democrai-osguard: standard output: {error.strerror}")
    sys.exit(code if isinstance(code, int) else Exit.ALLOWED)


def _fail(message: str) -> None:
    for line in message.splitlines():
        click.echo(printable(line), err=True)
    sys.exit(Exit.USAGE)


if __name__ == "__main__":
    run()
