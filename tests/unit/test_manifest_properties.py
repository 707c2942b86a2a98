from __future__ import annotations

import importlib.resources
import json
from typing import cast

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from democrai_osguard import Manifest, ManifestError, load_manifest
from democrai_osguard.access import OPERATIONS
from democrai_osguard.manifest_schema import manifest_schema

Document = dict[str, object]

SCHEMA = manifest_schema()
KINDS = ("module", "engine", "extractor")
GOOD_TARGETS = {
    "network": ("example.com", "HTTPS://Example.com/v1", "127.1", "*.example.com:443", "::/0"),
    "filesystem": ("/srv/none", "/", "none//x/", "~/none", "{data_dir}/x", "/none/\udcff\n"),
    "system_dependency": ("git", "g++"),
}

good_rules = st.sampled_from([*OPERATIONS]).flatmap(
    lambda resource: st.fixed_dictionaries(
        {
            "resource_type": st.just(str(resource)),
            "operation": st.sampled_from([str(name) for name in OPERATIONS[resource]]),
            "target": st.sampled_from(GOOD_TARGETS[resource]),
        }
    )
)
imports = st.lists(st.sampled_from(("ctypes", "cffi", "numpy", "_x1")), max_size=3)
policies = st.fixed_dictionaries(
    {}, optional={"access": st.lists(good_rules, max_size=4), "allowed_imports": imports}
)
engine_policies = st.builds(
    lambda policy, urls: policy | ({"allowed_config_urls": urls} if urls else {}),
    policies,
    st.lists(st.sampled_from(("base_url", "key")), max_size=2),
)
named = st.fixed_dictionaries({}, optional={"name": st.text(max_size=5), "version": st.text()})
good_documents = {
    "module": st.builds(lambda top, policy: top | policy, named, policies),
    "engine": st.builds(
        lambda top, phases: top | phases,
        named,
        st.fixed_dictionaries({}, optional=dict.fromkeys(("runtime", "install"), engine_policies)),
    ),
    "extractor": st.builds(
        lambda top, phases: top | phases,
        named,
        st.fixed_dictionaries({}, optional=dict.fromkeys(("runtime", "install"), policies)),
    ),
}
cases = st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), good_documents[kind]))

# Values that may take the place of any part of a good document.
strange: st.SearchStrategy[object] = st.one_of(
    st.sampled_from((None, True, 0, 1.5, "", "x", "read", "network", "filesystem", "connect")),
    st.sampled_from(("a.b", "1a", "ctypes\n", "a\u00b2", "\u2118", "a\u00b7", "*", " ")),
    st.builds(list),
    st.builds(dict),
    good_rules,
    good_rules.map(lambda rule: [rule]),
)
KEYS = ("access", "runtime", "install", "target", "operation", "oops", "name", "allowed_imports")


def broken(document: object, draw: st.DrawFn) -> object:
    """Return the document with one place of it changed, removed or added."""
    if draw(st.integers(0, 3)) == 0 or not isinstance(document, (dict, list)) or not document:
        if isinstance(document, dict) and draw(st.booleans()):
            return document | {draw(st.sampled_from(KEYS)): draw(strange)}
        return draw(strange)
    if isinstance(document, list):
        place = draw(st.integers(0, len(document) - 1))
        return [broken(part, draw) if at == place else part for at, part in enumerate(document)]
    key = draw(st.sampled_from(sorted(document)))
    if draw(st.integers(0, 4)) == 0:
        return {name: part for name, part in document.items() if name != key}
    return document | {key: broken(document[key], draw)}


@st.composite
def broken_cases(draw: st.DrawFn) -> tuple[str, object]:
    kind, document = draw(cases)
    return kind, broken(document, draw)


def parser_takes(kind: str, document: object) -> bool:
    """Tell whether the parser takes the shape. What a target means is not the schema's to say."""
    try:
        load_manifest(cast("Document", document), kind, base="/srv/none")
    except ManifestError as error:
        bad = [problem for problem in error.problems if ".target: invalid_target:" not in problem]
        return not bad and ": empty" not in str(error)
    return True


def schema_takes(kind: str, document: object) -> bool:
    schema = {"$ref": f"#/$defs/{kind}", "$defs": SCHEMA["$defs"]}
    return bool(jsonschema.Draft202012Validator(schema).is_valid(document))


@given(cases, st.sampled_from(["runtime", "install"]))
@settings(max_examples=150, deadline=None)
def test_parsing_what_was_dumped_is_identity(case: tuple[str, Document], phase: str) -> None:
    kind, document = case
    asked = None if kind == "module" else phase
    manifest = load_manifest(document, kind, asked, base="/srv/none")
    dumped = json.loads(json.dumps(manifest.dump()))
    assert load_manifest(dumped, kind, asked) == manifest
    assert load_manifest(dumped, kind, asked).dump() == manifest.dump()


@given(cases)
@settings(max_examples=100, deadline=None)
def test_the_schema_takes_what_the_parser_takes(case: tuple[str, Document]) -> None:
    kind, document = case
    assert isinstance(load_manifest(document, kind, base="/srv/none"), Manifest)
    assert schema_takes(kind, document)
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(document)


@given(broken_cases())
@settings(max_examples=400, deadline=None)
def test_the_schema_agrees_with_the_parser_about_broken_documents(
    case: tuple[str, object],
) -> None:
    assert schema_takes(*case) is parser_takes(*case)


IMPORT_ROOTS = ("ctypes", "a.b", "1a", "ctypes\n", "a\u00b2", "\u2118", "a\u00b7", "caf\u00e9", "")


@pytest.mark.parametrize("root", IMPORT_ROOTS, ids=ascii)
def test_the_schema_agrees_with_the_parser_about_import_roots(root: str) -> None:
    document = {"allowed_imports": [root]}
    assert schema_takes("module", document) is parser_takes("module", document)


def test_the_schema_is_a_schema_and_ships_with_the_package() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    shipped = importlib.resources.files("democrai_osguard") / "manifest.schema.json"
    assert json.loads(shipped.read_text()) == SCHEMA
