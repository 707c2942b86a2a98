"""One function for each surface that runs extensible code: the right guard, and nothing else.

Who asks (`user_id`, `organization_id`, `session_key`) is handed on to the guard as it is. Work
without a session can be approved permanently or denied, never for a session.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict, Unpack

from democrai_osguard.access import Operation, ResourceType, Rule, Subject
from democrai_osguard.errors import ManifestError
from democrai_osguard.guard import current_guard, network_policy_context, process_guard_context
from democrai_osguard.guard.contexts import _subject, rules_of
from democrai_osguard.manifest import Manifest, load_manifest
from democrai_osguard.policy.ruleset import RuleSet
from democrai_osguard.runtime.interpreter import interpreter_rules
from democrai_osguard.runtime.package_index import package_index_rules
from democrai_osguard.targets import normalize_target

if TYPE_CHECKING:
    from collections.abc import Iterable

    from democrai_osguard.guard.contexts import Item

    Name = str | Subject
    Source = Manifest | str | os.PathLike[str] | Mapping[str, object] | None
    Declared = Source | Iterable[Item]
    Folder = str | os.PathLike[str] | None


class Identity(TypedDict, total=False):
    """On whose behalf the code runs, and in which task of the application."""

    user_id: int | str | None
    organization_id: int | str | None
    session_key: str | None
    task_id: int | str | None


_MEDIA = "media"
_IDENTITY = ", ".join(Identity.__annotations__)
_BEYOND = "%s declares %s, which %s does not allow: only what both allow is left of it"
_log = logging.getLogger("democrai_osguard.runtime")


def module_context(
    name: Name, manifest: Source = None, *, folder: Folder = None, **identity: Unpack[Identity]
) -> process_guard_context:
    """Return the guard of a module's render, action or command. It may read its own folder."""
    (lambda: None).__code__  # noqa: B018 - names are put right; see `guard.sealed.hook`
    declared = _manifest(manifest, "module", None, folder)
    return _declared(name, "module", declared, _own_folder(folder), identity)


def task_context(
    name: Name, manifest: Source = None, *, folder: Folder = None, **identity: Unpack[Identity]
) -> process_guard_context:
    """Return the guard of a module's task: the same declarations, with or without a session."""
    (lambda: None).__code__  # noqa: B018 - names are put right; see `guard.sealed.hook`
    declared = _manifest(manifest, "module", None, folder)
    return _declared(name, "task", declared, _own_folder(folder), identity)


def engine_context(
    name: Name,
    manifest: Source = None,
    phase: str = "runtime",
    *,
    config: Mapping[str, object] | None = None,
    folder: Folder = None,
    **identity: Unpack[Identity],
) -> process_guard_context:
    """Return the guard of an engine in one phase; `config` fills its `allowed_config_urls`."""
    (lambda: None).__code__  # noqa: B018 - names are put right; see `guard.sealed.hook`
    declared = _manifest(manifest, "engine", phase, folder)
    configured = _config_rules(declared.allowed_config_urls, config or {})
    return _declared(name, "engine", declared, (*_own_folder(folder), *configured), identity)


def extractor_context(
    name: Name,
    manifest: Source = None,
    phase: str = "runtime",
    *,
    folder: Folder = None,
    **identity: Unpack[Identity],
) -> process_guard_context:
    """Return the guard of an extractor in one phase."""
    (lambda: None).__code__  # noqa: B018 - names are put right; see `guard.sealed.hook`
    declared = _manifest(manifest, "extractor", phase, folder)
    return _declared(name, "extractor", declared, _own_folder(folder), identity)


def mcp_context(name: Name, endpoint: str, **identity: Unpack[Identity]) -> process_guard_context:
    """Return the guard of an MCP server: its endpoint, no paths, no processes, no inheritance."""
    (lambda: None).__code__  # noqa: B018 - names are put right; see `guard.sealed.hook`
    return process_guard_context(
        name,
        "mcp",
        allowed_targets=(endpoint,),
        allow_subprocess=False,
        include_runtime_paths=False,
        **_known(identity),
    )


def tool_context(
    name: Name, access: Declared = (), **identity: Unpack[Identity]
) -> process_guard_context:
    """Return the guard of a tool: what it declares narrows, and silence changes nothing."""
    return _asset(name, "tool", access, identity)


def agent_context(
    name: Name, access: Declared = (), **identity: Unpack[Identity]
) -> process_guard_context:
    """Return the guard of an agent: what it declares narrows, and silence changes nothing."""
    return _asset(name, "agent", access, identity)


def pipeline_context(
    name: Name, access: Declared = (), **identity: Unpack[Identity]
) -> process_guard_context:
    """Return the guard of a pipeline: what it declares narrows, and silence changes nothing."""
    return _asset(name, "pipeline", access, identity)


def media_context(
    name: Name, url: str | None = None, *, subject_kind: str = "core", **identity: Unpack[Identity]
) -> network_policy_context:
    """Return the policy of fetching or proxying one external URL: receiving from there, no more.

    A URL by itself is fetched as `core:media`.
    """
    (lambda: None).__code__  # noqa: B018 - names are put right; see `guard.sealed.hook`
    if url is None and isinstance(name, str) and "://" in name:
        name, url = _MEDIA, name
    target = normalize_target(ResourceType.NETWORK, url or "", operation=Operation.RECEIVE)
    rule = Rule(ResourceType.NETWORK, Operation.RECEIVE, target)
    return network_policy_context(name, subject_kind, access=(rule,), **_known(identity))


def _declared(
    name: Name, kind: str, manifest: Manifest, more: Iterable[Rule], identity: Identity
) -> process_guard_context:
    installing = manifest.phase == "install"
    more = (*more, *package_index_rules(), *interpreter_rules()) if installing else tuple(more)
    return process_guard_context(
        name,
        kind,
        access=(*manifest.access, *more),
        allowed_imports=manifest.allowed_imports,
        allow_subprocess=installing,
        **_known(identity),
    )


def _manifest(source: Source, kind: str, phase: str | None, folder: Folder) -> Manifest:
    if isinstance(source, Manifest):
        if (source.kind, source.phase) != (kind, phase):
            found, wanted = _named(source.kind, source.phase), _named(kind, phase)
            raise ManifestError((f"this is the manifest of {found}, not of {wanted}",))
        return source
    return _loaded({} if source is None else source, kind, phase, folder)


def _loaded(
    source: str | os.PathLike[str] | Mapping[str, object],
    kind: str,
    phase: str | None = None,
    folder: Folder = None,
) -> Manifest:
    """Load a manifest; the log has what it warns of, since nobody else would look."""
    manifest = load_manifest(source, kind, phase, base=folder)
    for warning in manifest.warnings:
        _log.warning("the manifest of a %s: %s", _named(kind, phase), warning)
    return manifest


def _named(kind: str, phase: str | None) -> str:
    return kind if phase is None else f"{kind} in its phase {phase}"


def _asset(name: Name, kind: str, access: Declared, identity: Identity) -> process_guard_context:
    """Return the guard of an asset; say where it declares what the subjects around do not have."""
    (lambda: None).__code__  # noqa: B018 - names are put right; see `guard.sealed.hook`
    if isinstance(access, (str, os.PathLike, Mapping)):
        access = _loaded(access, kind)
    rules = rules_of(access.access if isinstance(access, Manifest) else access)
    guard = process_guard_context(name, kind, access=rules, **_known(identity))
    if isinstance(access, Manifest) and access.declared == ():
        # It declares that it needs nothing, which is not silence.
        user, organization = identity.get("user_id"), identity.get("organization_id")
        asks = user, organization, identity.get("session_key"), identity.get("task_id")
        guard._describe(_subject(name, kind), (), (), asks, (False, True, False))  # noqa: SLF001 - a guard's own part, made anew
    around = current_guard()
    if rules and around is not None:
        held = RuleSet(around.access)
        beyond = [r for r in rules if held.find(r.resource_type, r.operation, r.target) is None]
        who = name if isinstance(name, Subject) else f"{kind}:{name}"
        for rule in beyond:
            _log.warning(_BEYOND, who, rule, around.subject)
    return guard


def _known(identity: Identity) -> Identity:
    """Return who asks; an argument of the guard beneath is none of a surface's."""
    unknown = [name for name in identity if name not in Identity.__annotations__]
    if unknown:
        raise TypeError(f"unexpected argument {unknown[0]!r}: who asks is {_IDENTITY}")
    return identity


def _own_folder(folder: Folder) -> tuple[Rule, ...]:
    if folder is None:
        return ()
    target = normalize_target(ResourceType.FILESYSTEM, folder)
    return (Rule(ResourceType.FILESYSTEM, Operation.READ, target),)


def _config_rules(keys: Iterable[str], config: Mapping[str, object]) -> tuple[Rule, ...]:
    """Return receive and send for each configured URL; a key that is not set opens nothing."""
    targets = [
        normalize_target(ResourceType.NETWORK, value)
        for key in keys
        if isinstance(value := config.get(key), str) and value
    ]
    verbs = (Operation.RECEIVE, Operation.SEND)
    return tuple(Rule(ResourceType.NETWORK, verb, target) for target in targets for verb in verbs)
