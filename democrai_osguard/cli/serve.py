"""`democrai-osguard serve`: the approval page."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import click

from democrai_osguard.cli.approvals import json_option, local_operator, opened, store_option
from democrai_osguard.cli.output import say
from democrai_osguard.settings import load_settings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from democrai_osguard.approvals.service import ApprovalService


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0 takes a free one.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="ORIGIN",
    help="Another origin that browsers know the page by, as behind a proxy.",
)
@store_option
@json_option
def serve(
    host: str, port: int, names: tuple[str, ...], store: str | None, *, as_json: bool
) -> None:
    """Serve the approval page, and print a link that opens it once.

    Where the helper answers, decisions reach running sandboxes, and their refusals are asked about.
    With --json, each link is a line with "words" and "link".
    """
    try:
        from democrai_osguard.ui.server import serve as run  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise click.ClickException(
            "the page needs Starlette and uvicorn: pip install 'democrai-osguard[ui]'"
        ) from error
    service = opened(store)
    with _following(service):
        tell = _tell_machines if as_json else _tell_people
        run(service, local_operator(), tell, host=host, port=port, names=names)


def _tell_people(words: str, link: str) -> None:
    say(words)
    if link:
        say(link)


def _tell_machines(words: str, link: str) -> None:
    click.echo(json.dumps({"words": words, "link": link or None}))


def _following(service: ApprovalService) -> AbstractContextManager[object]:
    settings = load_settings()
    if not settings.enabled:
        return contextlib.nullcontext()
    from democrai_osguard.enforcement.following import EgressLink  # noqa: PLC0415 - only here

    return EgressLink(service, settings.helper_socket)
