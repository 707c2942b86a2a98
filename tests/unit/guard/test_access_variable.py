"""`DEMOCRAI_ACCESS`: what is dumped loads again, and what is not understood is an error."""

from __future__ import annotations

import json

import pytest
from guard.confined import confined
from hypothesis import given
from hypothesis import strategies as st

from democrai_osguard.access import Rule, Subject
from democrai_osguard.errors import ContractError, ManifestError
from democrai_osguard.guard import process_guard_context, process_guard_from_env
from democrai_osguard.guard.access_variable import (
    child_environment,
    parse_access,
    parse_chain,
)
from democrai_osguard_launcher import access as launcher
from democrai_osguard_launcher.errors import UsageError

_RULE = {"resource_type": "filesystem", "operation": "read", "target": "/srv/a"}
_SEND = {"resource_type": "network", "operation": "send", "target": "a.com"}

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
        ("{", "DEMOCRAI_ACCESS: not JSON"),
        ("{}", "expected a list"),
        ("[1]", "DEMOCRAI_ACCESS[0]: expected an object"),
        (json.dumps([_RULE | {"more": 1}]), "DEMOCRAI_ACCESS[0].more: unknown field"),
        (json.dumps([_RULE | {"operation": "write"}]), "'write' is not an operation"),
        (json.dumps([_RULE | {"resource_type": "url"}]), "'url' is not a resource type"),
        (json.dumps([_RULE | {"target": "/srv/../a"}]), "not in normal form"),
        (json.dumps([_RULE | {"target": 7}]), "target: expected text"),
        (json.dumps([_RULE | {"subject": {"type": "x", "name": "m"}}]), ".subject: "),
        (json.dumps([_RULE | {"subject": "m"}]), ".subject: expected an object"),
        (json.dumps([_RULE | {"subject": None}]), ".subject: expected an object"),
        (json.dumps([_RULE | {"target": "srv/a"}]), "'srv/a': not an absolute path"),
        (json.dumps([_RULE | {"target": "~/a"}]), "'~/a': not an absolute path"),
        (json.dumps([_RULE | {"target": "{data_dir}/a"}]), "not an absolute path"),
        (json.dumps([_RULE | {"target": ""}]), "a rule's target is text"),
        (json.dumps([_RULE | {"target": "/srv/\0"}]), "not in normal form"),
        (json.dumps([_RULE | {"target": "/srv/\ud800"}]), "not in normal form"),
        (json.dumps([_SEND | {"target": "https://u:hunter2@a.com"}]), "user information"),
        (json.dumps([_SEND | {"target": "*.com"}]), "DEMOCRAI_ACCESS[0].target: "),
    ],
)
def test_what_is_not_understood_is_an_error(text: str, place: str) -> None:
    with pytest.raises(ManifestError, match=place.replace("[", r"\[")):
        parse_access(text)
    with pytest.raises(UsageError):
        launcher.parse(text)


@pytest.mark.parametrize(
    ("target", "normal"),
    [
        ("A.COM", "a.com"),
        ("127.0.0.1:9", "localhost:9"),
        ("HTTPS://Example.com:443/v1/../v2/", "https://example.com/v2/"),
        ("[::1]:80", "localhost:80"),
    ],
)
def test_another_spelling_of_a_network_target_means_its_normal_form(
    target: str, normal: str
) -> None:
    rules = parse_access(json.dumps([_SEND | {"target": target}]))
    assert [rule.target for rule in rules] == [normal]


@pytest.mark.parametrize("target", ["/srv/a/", "//srv/a", "/srv//a", "/./srv/./a/."])
def test_another_spelling_of_a_path_means_its_normal_form(target: str) -> None:
    assert parse_access(json.dumps([_RULE | {"target": target}])) == parse_access(
        json.dumps([_RULE])
    )


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


@given(st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=5))
def test_a_chain_that_is_dumped_loads_again(names: list[str]) -> None:
    try:
        chain = [Subject("tool", name) for name in names]  # type: ignore[arg-type]
    except ContractError:
        return
    texts = tuple(map(str, chain))
    variables = child_environment(("tool", names[-1], texts, (), (), (None,) * 3, (), False))
    assert parse_chain(variables["DEMOCRAI_SUBJECT_CHAIN"], chain[-1]) == tuple(chain[:-1])


def test_one_subject_alone_needs_no_chain() -> None:
    info = ("module", "m", ("module:m",), (), (), (None,) * 3, (), False)
    assert "DEMOCRAI_SUBJECT_CHAIN" not in child_environment(info)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[", "DEMOCRAI_SUBJECT_CHAIN: not JSON"),
        ("{}", "expected a list of subjects"),
        ("[1]", "expected a list of subjects"),
        ("[]", "does not end with task:m"),
        ('["module:m"]', "does not end with task:m"),
        ('["god:g", "task:m"]', "not a subject type"),
        ('["m", "task:m"]', "written kind:name"),
        (json.dumps(["module:m"] * 64 + ["task:m"]), "more than 64"),
    ],
)
def test_a_chain_that_is_not_understood_is_an_error(text: str, place: str) -> None:
    with pytest.raises(ManifestError, match=place):
        parse_chain(text, Subject.parse("task:m"))


def test_a_process_continues_the_chain_and_gains_nothing_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEMOCRAI_NETWORK_SUBJECT", "m")
    monkeypatch.setenv("DEMOCRAI_NETWORK_SUBJECT_KIND", "tool")
    monkeypatch.setenv("DEMOCRAI_SUBJECT_CHAIN", '["module:notes", "agent:a", "tool:m"]')
    monkeypatch.setenv("DEMOCRAI_ACCESS", json.dumps([_RULE]))

    def check() -> object:
        with (
            process_guard_from_env() as info,
            process_guard_context("inner", "tool", allowed_paths=["/srv"]) as inner,
        ):
            assert info is not None
            assert inner is not None
            chains = [list(map(str, each.subject_chain)) for each in (info, inner)]
            access = [[str(rule) for rule in each.access] for each in (info, inner)]
            assert [len(each.subject_allow_chain) for each in (info, inner)] == [3, 4]
            return [chains, access]

    path = ["module:notes", "agent:a", "tool:m"]
    read = ["filesystem read /srv/a"]
    assert confined(check) == [[path, [*path, "tool:inner"]], [read, read]]


def test_a_chain_of_another_subject_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMOCRAI_NETWORK_SUBJECT", "m")
    monkeypatch.setenv("DEMOCRAI_NETWORK_SUBJECT_KIND", "tool")
    monkeypatch.setenv("DEMOCRAI_SUBJECT_CHAIN", '["module:notes", "tool:other"]')
    with pytest.raises(ManifestError, match="does not end with tool:m"):
        process_guard_from_env()


def test_an_unknown_kind_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMOCRAI_NETWORK_SUBJECT_KIND", "god")
    with pytest.raises(ContractError):
        process_guard_from_env()
