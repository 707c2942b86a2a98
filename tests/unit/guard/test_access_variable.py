"""`DEMOCRAI_ACCESS`: what is dumped loads again, and what is not understood is an error."""

from __future__ import annotations

import json

import pytest
from guard.confined import confined
from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard.access import Rule
from democrai_osguard.errors import ContractError, ManifestError
from democrai_osguard.guard import process_guard_from_env
from democrai_osguard.guard.access_variable import child_environment, parse_access

_RULE = {"resource_type": "filesystem", "operation": "read", "target": "/srv/a"}

rules = st.builds(
    Rule,
    st.just("filesystem"),
    st.sampled_from(["read", "create", "modify", "delete", "execute"]),
    st.lists(st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True), min_size=1, max_size=4).map(
        lambda parts: "/" + "/".join(parts)
    ),
)


@given(st.lists(rules, max_size=8))
def test_what_is_dumped_loads_as_the_same_rules(given_rules: list[Rule]) -> None:
    flat = [(str(r.resource_type), str(r.operation), r.target) for r in given_rules]
    info = ("module", "m", (), (), flat, ("u", None, "s"), (), False)
    variables = child_environment(info)
    assert list(parse_access(variables["DEMOCRAI_ACCESS"])) == given_rules
    assert variables["DEMOCRAI_USER_ID"] == "u"
    assert "DEMOCRAI_ORGANIZATION_ID" not in variables


def test_an_item_may_carry_its_subject() -> None:
    item = _RULE | {"subject": {"type": "module", "name": "m"}}
    assert parse_access(json.dumps([item])) == (Rule(**_RULE),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", "not JSON"),
        ("{}", "expected a list"),
        ("[1]", "DEMOCRAI_ACCESS[0]: expected an object"),
        (json.dumps([_RULE | {"more": 1}]), "'more': unknown field"),
        (json.dumps([_RULE | {"operation": "write"}]), "'write' is not an operation"),
        (json.dumps([_RULE | {"resource_type": "url"}]), "'url' is not a resource type"),
        (json.dumps([_RULE | {"target": "/srv/../a"}]), "not in normal form"),
        (json.dumps([_RULE | {"target": 7}]), "target: expected text"),
        (json.dumps([_RULE | {"subject": {"type": "x", "name": "m"}}]), ".subject: "),
        (json.dumps([_RULE | {"subject": "m"}]), ".subject: expected an object"),
        (
            json.dumps([{"resource_type": "network", "operation": "send", "target": "A.COM"}]),
            "not in normal form",
        ),
    ],
)
def test_what_is_not_understood_is_an_error(text: str, place: str) -> None:
    with pytest.raises(ManifestError, match=place.replace("[", r"\[")):
        parse_access(text)


def test_missing_variables_close(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.delenv("DEMOCRAI_ACCESS", raising=False)
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", f"{tmp_path}/temp")
    with open(f"{tmp_path}/file", "w", encoding="utf-8") as file:
        file.write("x")

    def check() -> object:
        with process_guard_from_env() as info:
            assert info is not None
            try:
                open(f"{tmp_path}/file", encoding="utf-8").close()
            except PermissionError as error:
                return [str(info.subject), len(info.access), str(error)[:25]]
        return None

    assert confined(check) == ["core:unknown", 0, "sandbox_filesystem_denied"]


def test_the_environment_describes_the_whole_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMOCRAI_NETWORK_SUBJECT", "m")
    monkeypatch.setenv("DEMOCRAI_NETWORK_SUBJECT_KIND", "task")
    monkeypatch.setenv("DEMOCRAI_ACCESS", json.dumps([_RULE]))
    monkeypatch.setenv("DEMOCRAI_SESSION_KEY", "s")

    def check() -> object:
        with process_guard_from_env() as info:
            assert info is not None
            return [str(info.subject), [str(rule) for rule in info.access], info.session_key]

    assert confined(check) == ["task:m", ["filesystem read /srv/a"], "s"]


def test_an_unknown_kind_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMOCRAI_NETWORK_SUBJECT_KIND", "god")
    with pytest.raises(ContractError):
        process_guard_from_env()
