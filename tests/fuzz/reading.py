"""What must hold for whatever is read: a value, or the one error that the reader promises."""

# ruff: noqa: D401, PT017 - a check is described by what must hold, of errors too

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fuzz.inputs import OPERATIONS

from democrai_osguard import ManifestError, load_manifest
from democrai_osguard.errors import ContractError, TargetError
from democrai_osguard.guard.access_variable import parse_access
from democrai_osguard.manifest import parse_json
from democrai_osguard.permissions.patch_files import patched_files
from democrai_osguard.targets import covers, normalize_target
from democrai_osguard_helper import protocol
from democrai_osguard_launcher import access, endpoints, explain, options
from democrai_osguard_launcher.errors import UsageError
from democrai_osguard_launcher.facts import gather
from democrai_osguard_launcher.plan import make_plan
from democrai_osguard_launcher.rules import FILESYSTEM, within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from democrai_osguard_launcher.rules import Rule


def manifest(case: tuple[str, str | None, object]) -> None:
    """A manifest is read, or refused with places; what was read is read again as the same."""
    kind, phase, document = case
    try:
        read = load_manifest(cast("Any", document), kind, phase, base="/srv/none")
    except (ManifestError, ContractError) as error:
        assert str(error)
        return
    again = json.loads(json.dumps(read.dump()))
    assert load_manifest(again, kind, phase).dump() == read.dump()


def manifest_text(text: str) -> None:
    """Any text in place of a manifest is a manifest or an error that says so."""
    with contextlib.suppress(ManifestError):
        load_manifest(cast("Any", parse_json(text)), "module", base="/srv/none")


def access_variable(text: str) -> None:
    """The guard and the launcher read the variable alike: what the guard takes, both take."""
    try:
        ours = parse_access(text)
    except ManifestError:
        ours = None
    try:
        theirs = access.parse(text)
    except UsageError as error:
        assert "\n" not in str(error), "one line"
        assert ours is None, f"the guard takes what the launcher does not: {error}"
        return
    assert access.parse(access.dump(theirs)) == theirs
    if ours is not None:
        assert [(str(r.resource_type), str(r.operation), r.target) for r in ours] == [
            (rule.resource_type, rule.operation, _spelt_by_the_guard(rule)) for rule in theirs
        ]


def _spelt_by_the_guard(rule: Rule) -> str:
    if rule.resource_type == "network":  # the launcher leaves it as it was written
        return normalize_target(rule.resource_type, rule.target)
    return rule.target


def target(case: tuple[str, str]) -> None:
    """A target has one normal form, which is its own normal form and covers itself."""
    kind, text = case
    for operation in (None, *OPERATIONS[kind]):
        try:
            normal = normalize_target(kind, text, operation=operation)
        except TargetError as error:
            assert "\n" not in str(error)
            continue
        assert normalize_target(kind, normal, operation=operation) == normal
        assert covers(kind, normal, normal)
        if kind == "network":
            _same_endpoint(normal)


def _same_endpoint(normal: str) -> None:
    """What the guard writes into the variable, the launcher can read."""
    endpoint = endpoints.parse(normal)
    assert endpoint.host


def helper_message(payload: bytes) -> None:
    """Bytes are a request or a violation; a request is written back as itself."""
    try:
        read = protocol.parse_request(payload)
    except protocol.ProtocolViolation as error:
        assert len(str(error)) < 1000
        return
    assert protocol.parse_request(protocol.dump(read)) == read


def command_line(words: Sequence[str]) -> None:
    """A command line is understood or a usage error; a plan opens what the rules name, no more."""
    try:
        asked = options.parse(words)
    except UsageError as error:
        assert str(error)
        return
    plan = make_plan(asked.rules, gather(asked.rules, None, "/usr/bin"))
    json.dumps(explain.as_document(plan))
    named = frozenset(r.target for r in asked.rules if r.resource_type == FILESYSTEM)
    for path, rights, why in plan.paths:
        if why == "declared":
            assert rights
            assert within(path, named)


def patch(text: str) -> None:
    """Every file that git would touch for a patch is among those that we name."""
    paths = [file.path for file in patched_files(text)]
    # Where no a/ and b/ stand before the names, how much is cut off is the caller's choice.
    named = {_plain(name) for path in paths for name in (path, path.lstrip("/").partition("/")[2])}
    for path in _touched_by_git(text):
        assert _plain(path) in named, f"git touches {path!r}, named were {sorted(named)}"


def _plain(path: str) -> str:
    return os.path.normpath(path).lstrip("/")


def _touched_by_git(text: str) -> list[str]:
    """Return what `git apply` says it would touch; nothing where it takes the text for no patch."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "patch").write_bytes(text.encode("utf-8", "surrogateescape"))
        done = subprocess.run(
            ["git", "apply", "--numstat", "-z", "--unsafe-paths", "patch"],
            cwd=folder, capture_output=True, check=False,
            env={"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": "/", "LC_ALL": "C"},
        )  # fmt: skip
    if done.returncode:
        return []
    rows = [row.split(b"\t", 2) for row in done.stdout.split(b"\0") if row]
    names = [os.fsdecode(row[2]) for row in rows if len(row) == 3]
    return [name for name in names if name != "dev/null"]  # which stands for no file
