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
    class Configuration:
        def __init__(self, *, isolated: bool) -> None:
            assert not isolated

        def load(self) -> None:
            pass

        def items(self) -> list[tuple[str, Any]]:
            return shape

    pip = importlib.import_module("pip._internal.configuration")
    monkeypatch.setattr(pip, "Configuration", Configuration)
    found = {(str(rule.operation), rule.target) for rule in package_index_rules()}
    assert found == {
        ("receive", "https://index.example.com"),
        ("connect", "index.example.com:443"),
    }
