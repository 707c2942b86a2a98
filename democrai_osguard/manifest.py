"""Manifests: from a JSON document to rules, with each error naming its place.

All problems are reported at once. Past `load_manifest` no code sees a raw document.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from democrai_osguard import manifest_shape as shape
from democrai_osguard.access import ResourceType, Rule, SubjectType, operation_of
from democrai_osguard.errors import ContractError, ManifestError, TargetError, place, shown
from democrai_osguard.targets import normalize_target
from democrai_osguard.targets.filesystem import is_broad
from democrai_osguard.targets.network import parse_network

if TYPE_CHECKING:
    from collections.abc import Iterable

MANIFEST_LIMIT = 16 * 1024 * 1024  # bytes; some hundred thousand rules
# What a shell would replace, and a rule does not.
_PATTERN = re.compile(r"[*?]|\$\{?[A-Za-z_]")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a subject declares for one phase, in normal form."""

    kind: SubjectType
    phase: str | None
    name: str | None
    access: tuple[Rule, ...] = ()
    allowed_imports: tuple[str, ...] = ()
    allowed_config_urls: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)
    declares_access: bool = True  # an asset that is silent leaves the outer policy as it is

    @property
    def declared(self) -> tuple[Rule, ...] | None:
        """What a chain is told of this subject: its rules, or None where it declares nothing."""
        return self.access if self.declares_access else None

    def dump(self) -> dict[str, object]:
        """Return a document that loads as this manifest."""
        policy: dict[str, object] = {"allowed_imports": list(self.allowed_imports)}
        if self.declares_access:
            policy["access"] = dump_access(self.access)
        if self.allowed_config_urls:
            policy[shape.CONFIG_URLS] = list(self.allowed_config_urls)
        named: dict[str, object] = {} if self.name is None else {"name": self.name}
        return named | (policy if self.phase is None else {self.phase: policy})


def load_manifest(
    path_or_dict: str | os.PathLike[str] | Mapping[str, object],
    kind: str = "module",
    phase: str | None = None,
    base: str | os.PathLike[str] | None = None,
) -> Manifest:
    """Read a manifest; raise ManifestError with one line for each place that is wrong.

    A relative path is relative to the manifest's folder, or to `base` where it is given.
    """
    if not isinstance(path_or_dict, (str, os.PathLike)):
        return _Reader(kind, phase, base).read(path_or_dict)
    folder = os.path.dirname(os.path.abspath(path_or_dict)) if base is None else base
    return _Reader(kind, phase, folder).read(read_document(path_or_dict))


def read_document(path: str | os.PathLike[str]) -> object:
    """Return the JSON document in a file; raise ManifestError where there is none."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MANIFEST_LIMIT + 1)
    except (OSError, ValueError) as error:  # the latter for a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise ManifestError((f"{os.fspath(path)!a}: {reason}",)) from error
    if len(raw) > MANIFEST_LIMIT:
        raise ManifestError((f"{os.fspath(path)!a}: larger than {MANIFEST_LIMIT} bytes",))
    return parse_json(raw)


def parse_json(raw: bytes | str) -> object:
    """Return a JSON document; a key that stands twice is an error, not the last one's win."""
    try:
        return json.loads(raw, object_pairs_hook=_without_twins, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError((f"not JSON: {error}",)) from error


def dump_access(rules: Iterable[Rule]) -> list[dict[str, str]]:
    """Return rules as the flat list that manifests and DEMOCRAI_ACCESS carry."""
    return [
        {"resource_type": str(r.resource_type), "operation": str(r.operation), "target": r.target}
        for r in rules
    ]


@dataclass(slots=True)
class _Section:
    """The policy of one phase, or of a flat manifest, with what is worth a warning in it."""

    access: list[Rule] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    config_urls: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    declares_access: bool = False


class _Reader:
    """One reading of one document, which collects every problem on its way."""

    def __init__(self, kind: str, phase: str | None, base: str | os.PathLike[str] | None) -> None:
        self._kind, self._phase = _kind_and_phase(kind, phase)
        self._base = base
        self._problems: list[str] = []

    def read(self, document: object) -> Manifest:
        top = self._object(document, "manifest", shape.top_keys(self._kind))
        for key in shape.DESCRIPTIVE:
            self._expect(str, top, key, "")
        section = self._sections(top)
        if self._problems:
            raise ManifestError(tuple(self._problems))
        return Manifest(
            self._kind,
            self._phase,
            name=str(top["name"]) if "name" in top else None,
            access=tuple(dict.fromkeys(section.access)),
            allowed_imports=tuple(dict.fromkeys(section.imports)),
            allowed_config_urls=tuple(dict.fromkeys(section.config_urls)),
            warnings=tuple(section.warnings),
            declares_access=section.declares_access,
        )

    def _sections(self, top: Mapping[str, object]) -> _Section:
        """Read every phase, so that each is checked, and return the one that was asked for."""
        if self._phase is None:
            return self._section(top, "")
        found = {}
        for phase in shape.PHASES:
            inside = self._object(top.get(phase, {}), phase, shape.phase_keys(self._kind))
            found[phase] = self._section(inside, f"{phase}.")
        section = found[self._phase]
        section.config_urls += [key for _, key in self._texts(top, shape.CONFIG_URLS, "")]
        return section

    def _section(self, holder: Mapping[str, object], prefix: str) -> _Section:
        section = _Section(declares_access="access" in holder)
        for index, item in enumerate(self._expect(list, holder, "access", prefix)):
            self._rule(item, f"{prefix}access[{index}]", section)
        for at, root in self._texts(holder, "allowed_imports", prefix):
            self._import(root, at, section)
        section.config_urls += [key for _, key in self._texts(holder, shape.CONFIG_URLS, prefix)]
        return section

    def _rule(self, item: object, at: str, section: _Section) -> None:
        entry = self._object(item, at, shape.ACCESS_KEYS)
        missing = [key for key in shape.ACCESS_KEYS if key not in entry]
        if missing:
            if isinstance(item, Mapping):
                self._problems += [f"{at}.{key}: missing" for key in missing]
            return
        texts = [self._expect(str, entry, key, f"{at}.") for key in shape.ACCESS_KEYS]
        if all(isinstance(entry[key], str) for key in shape.ACCESS_KEYS):
            self._normal_rule((texts[0], texts[1], texts[2]), at, section)

    def _normal_rule(self, texts: tuple[str, str, str], at: str, section: _Section) -> None:
        resource_type, operation, target = texts
        if resource_type not in list(ResourceType):
            names = ", ".join(ResourceType)
            problem = f"{shown(resource_type)} is not a resource type ({names})"
            self._problems.append(f"{at}.resource_type: {problem}")
            return
        try:
            resource, verb = operation_of(resource_type, operation)
            rule = Rule(resource, verb, normalize_target(resource, target, base=self._base))
        except ContractError as error:
            self._problems.append(f"{at}.operation: {error}")
        except TargetError as error:
            self._problems.append(f"{at}.target: {error}")
        else:
            section.access.append(rule)
            section.warnings += _doubts(rule, at)

    def _import(self, root: str, at: str, section: _Section) -> None:
        if not re.match(shape.IMPORT_ROOT, root):
            self._problems.append(f"{at}: {shown(root)} is not the name of an import root")
            return
        section.imports.append(root)
        if root not in shape.SENSITIVE_IMPORTS:
            section.warnings.append(f"{at}: {root!a} is not a guarded import; leave it out")

    def _object(self, value: object, at: str, keys: tuple[str, ...]) -> Mapping[str, object]:
        if not isinstance(value, Mapping):
            self._problems.append(f"{at}: expected an object, not {_json_type(value)}")
            return {}
        for key in value:
            if key not in keys:
                where = place("" if at == "manifest" else at, key)
                self._problems.append(f"{where}: unknown key (known: {', '.join(keys)})")
        return value

    def _expect(
        self, kind: type[_Json], holder: Mapping[str, object], key: str, prefix: str
    ) -> _Json:
        value = holder.get(key, kind())
        if isinstance(value, kind):
            return value
        expected = _json_type(kind())
        self._problems.append(f"{prefix}{key}: expected {expected}, not {_json_type(value)}")
        return kind()

    def _texts(self, holder: Mapping[str, object], key: str, prefix: str) -> list[tuple[str, str]]:
        """Return the texts in a list, each with its place."""
        texts = []
        for index, item in enumerate(self._expect(list, holder, key, prefix)):
            at = f"{prefix}{key}[{index}]"
            if isinstance(item, str) and item:
                texts.append((at, item))
            else:
                self._problems.append(f"{at}: expected text that is not empty")
        return texts


_Json = TypeVar("_Json", str, list[object])


def _kind_and_phase(kind: str, phase: str | None) -> tuple[SubjectType, str | None]:
    if kind == SubjectType.MCP:
        reason = "its rules come from its endpoint alone (runtime.mcp_context)"
        raise ManifestError((f"an mcp server has no manifest: {reason}",))
    if kind not in (*shape.FLAT, *shape.PHASED):
        known = ", ".join((*shape.FLAT, *shape.PHASED))
        raise ManifestError((f"{shown(kind)} has no manifest (known: {known})",))
    subject = SubjectType(kind)
    if subject in shape.FLAT:
        if phase not in {None, "runtime"}:
            raise ManifestError((f"a {kind} has no phase {shown(phase)}",))
        return subject, None
    if phase not in {None, *shape.PHASES}:
        raise ManifestError((f"{shown(phase)} is not a phase ({', '.join(shape.PHASES)})",))
    return subject, phase or "runtime"


def _doubts(rule: Rule, at: str) -> list[str]:
    if rule.resource_type is ResourceType.FILESYSTEM and is_broad(rule.target):
        return [f"{at}.target: {rule.target} is broad; name the folder that is really needed"]
    if rule.resource_type is ResourceType.FILESYSTEM and _PATTERN.search(rule.target):
        literal = f"{rule.target} is taken as it stands"
        return [f"{at}.target: {literal}: paths have no patterns and no variables"]
    if rule.resource_type is ResourceType.NETWORK:
        network = parse_network(rule.target).host.network
        if network is not None and network.prefixlen == 0:
            return [f"{at}.target: {rule.target} is every address; name the hosts"]
    return []


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value"}
    return "null" if value is None else names.get(type(value), "a number")


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        keys = [key for key, _ in pairs]
        twins = sorted({key for key in keys if keys.count(key) > 1})
        raise ManifestError((f"{', '.join(map(shown, twins))}: stands twice in one object",))
    return document


def _no_constant(name: str) -> object:
    raise ManifestError((f"{name} is not JSON",))
