"""Refusals in sentences, each with the line of a manifest that would allow the act. Pure."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from democrai_osguard.access import Operation, ResourceType
from democrai_osguard.learning.folding import TEMPORARY
from democrai_osguard.learning.telling import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from democrai_osguard.learning.sightings import Lack, Sighting, Sightings

_DID = {
    Operation.READ: "read",
    Operation.CREATE: "create",
    Operation.MODIFY: "change",
    Operation.DELETE: "delete",
    Operation.EXECUTE: "start",
    Operation.CONNECT: "connect to",
    Operation.RECEIVE: "receive from",
    Operation.SEND: "send to",
}
_UNKNOWN = {ResourceType.NETWORK: "host:port", ResourceType.FILESYSTEM: "/path/of/a/socket"}


def sentences(run: Sightings) -> Iterator[str]:
    """Yield what was refused and what would allow it; one line says so if nothing was."""
    command = " ".join(run.command)
    if not run.seen:
        yield f"Nothing was refused to: {command}"
        return
    were = "thing was" if len(run.seen) == 1 else "things were"
    yield f"{len(run.seen)} {were} refused to: {command}"
    temporary = frozenset(_temporary(run))
    telling, done_without = in_order(run)
    for sighting in telling:
        yield from _told(sighting, temporary)
    if done_without:
        yield ""
        yield "Most programs do without what follows."
    for sighting in done_without:
        yield from _told(sighting, temporary)
    if not run.complete:
        yield ""
        yield "The file was full before the run ended: there was more."


def manifest_line(lack: Lack) -> str:
    """Return the entry of `access` that would allow it."""
    return json.dumps(
        {
            "resource_type": str(lack.resource_type),
            "operation": str(lack.operation),
            "target": lack.target or _UNKNOWN[lack.resource_type],
        }
    )


def _told(sighting: Sighting, temporary: frozenset[str]) -> Iterator[str]:
    yield ""
    yield _sentence(sighting)
    yield _remedy(sighting, temporary)


def _sentence(sighting: Sighting) -> str:
    program = os.path.basename(sighting.programs.most_common(1)[0][0]) or "a program"
    who = f"{program} (process {sighting.pids[0]})"
    often = "" if sighting.count == 1 else f", {sighting.count} times"
    if sighting.lack is None:
        why = f": {sighting.why}" if sighting.why else ""
        return f"{who} was refused {sighting.call}{often}{why}."
    if sighting.lack.target is None:
        kind = "unix" if sighting.lack.resource_type is ResourceType.FILESYSTEM else "network"
        return f"{who} wanted to open a {kind} socket{often}: no rule is about one."
    what = next(iter(sighting.paths), sighting.lack.target)
    what = f"{what}, which it looked up as {sighting.name}," if sighting.name else what
    more = "" if len(sighting.paths) <= 1 else f" and {len(sighting.paths) - 1} more"
    did = _DID[sighting.lack.operation]
    return f"{who} wanted to {did} {what}{more}{often}: no rule allows it."


def _temporary(run: Sightings) -> Iterator[str]:
    """Yield what it wanted to make where everybody's temporary files are."""
    for lack in (sighting.lack for sighting in run.seen if sighting.lack):
        target = lack.target if lack.operation is Operation.CREATE else None
        if target and os.path.dirname(target) in TEMPORARY:
            yield target


def _remedy(sighting: Sighting, temporary: frozenset[str]) -> str:
    lack = sighting.lack
    if lack is None:
        return "  No line of a manifest allows this call."
    line = manifest_line(lack)
    if lack.target is None:
        return f"  Whom it wanted to reach is not known. Of this form: {line}"
    if lack.resource_type is ResourceType.FILESYSTEM and lack.target.startswith("/proc/"):
        return f"  It is the folder of one process, which will have another number: {line}"
    if lack.target in temporary:
        advice = "set TMPDIR to a folder that it may write"
        return f"  If it is a temporary file, {advice}. Else, under access: {line}"
    if sighting.inside and sighting.name:
        return f"  No rule for a name opens a private address; this one names it: {line}"
    return f"  In the manifest, under access: {line}"
