"""The package indexes of an install phase, from what each version of pip says of itself."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from democrai_osguard.runtime.package_index import package_index_rules

FLAT = [("global.cert", "/ca"), (":env:.index-url", "https://index.example.com/simple")]
GROUPED = [("/etc/pip.conf", {"global.cert": "/ca"}), (":env:", dict(FLAT[1:]))]


@pytest.mark.parametrize("shape", [FLAT, GROUPED], ids=["flat", "grouped by file"])
def test_the_configured_index_is_opened_and_no_other(
    monkeypatch: pytest.MonkeyPatch, shape: list[tuple[str, Any]]
) -> None:
    assert rules_with(monkeypatch, shape) == {
        ("receive", "https://index.example.com"),
        ("connect", "index.example.com:443"),
    }


def test_who_logs_in_at_an_index_opens_its_host_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    urls = "https://me:hunt@er2@index.example.com/simple http://you@[::1]:8080/@scope/simple"
    assert rules_with(monkeypatch, [("global.index-url", urls)]) == {
        ("receive", "https://index.example.com"),
        ("connect", "index.example.com:443"),
        ("receive", "http://localhost:8080"),
        ("connect", "localhost:8080"),
    }


@pytest.mark.parametrize("text", ["/srv/wheels", "file:///srv/wheels", "https://", "https://a@"])
def test_what_names_no_host_opens_nothing(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert rules_with(monkeypatch, [("global.index-url", text)]) == set()


def test_without_a_configured_index_the_hosts_of_the_default_one_are_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = rules_with(monkeypatch, FLAT[:1])
    assert {operation for operation, _ in opened} == {"receive", "connect"}
    assert {target for operation, target in opened if operation == "receive"} == {
        "https://pypi.org",
        "https://files.pythonhosted.org",
    }


def rules_with(
    monkeypatch: pytest.MonkeyPatch, shape: list[tuple[str, Any]]
) -> set[tuple[str, str]]:
    """Return the rules of an install phase where pip's configuration says this."""

    class Configuration:
        def __init__(self, *, isolated: bool) -> None:
            assert not isolated

        def load(self) -> None:
            pass

        def items(self) -> list[tuple[str, Any]]:
            return shape

    pip = importlib.import_module("pip._internal.configuration")
    monkeypatch.setattr(pip, "Configuration", Configuration)
    return {(str(rule.operation), rule.target) for rule in package_index_rules()}
