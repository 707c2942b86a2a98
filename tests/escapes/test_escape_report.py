"""The document of the ways out is the one that its command makes, and names every technique."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from escapes.kernel_suite import operation_names
from escapes.outcome import ALLOWED, TOGETHER
from escapes.rendering import document, fullest
from escapes.report import read_all
from escapes.single_layers import freely, under
from guard.laboratory import TECHNIQUES as CORPUS
from kernel.techniques import TECHNIQUES
from root.checks import CHECKS, ROWS

if TYPE_CHECKING:
    from pathlib import Path


SIGNALS = 6  # before this ABI Landlock does not see them, and the launcher says so


@pytest.fixture
def seen(repo: Path) -> list[dict[str, Any]]:
    return read_all(repo / "docs/escapes")


def test_the_document_is_made_of_what_was_seen(repo: Path, seen: list[dict[str, Any]]) -> None:
    written = (repo / "docs/escapes.md").read_text(encoding="utf-8")
    assert written == document(seen), "make escape-report"


def test_every_technique_of_the_suites_was_tried(seen: list[dict[str, Any]]) -> None:
    named = {(row["suite"], row["name"]) for row in fullest(seen)["rows"]}
    suites = {
        "kernel": TECHNIQUES,
        "operation": operation_names(),
        "guard": [technique.name for technique in CORPUS],
        "egress": [row.name for row in ROWS],
        "egress check": [check.__name__.replace("_", " ") for check in CHECKS],
    }
    missing = {(suite, name) for suite, names in suites.items() for name in names} - named
    assert not missing, "make escape-report"


def test_together_the_layers_stop_every_way_out(seen: list[dict[str, Any]]) -> None:
    for one in seen:
        held = [row for row in one["rows"] if row["suite"] in {"kernel", "operation", "egress"}]
        open_ones = [row["name"] for row in held if row["layers"].get(TOGETHER) == ALLOWED]
        if one["host"]["landlock"] < SIGNALS:
            open_ones = [name for name in open_ones if "signal" not in name]
        assert len(held) > 150
        assert open_ones == [], one["host"]


@pytest.mark.needs("landlock", "seccomp", "root")
def test_one_layer_alone_is_one_layer_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    listing = (tmp_path / "file").read_text
    personality = TECHNIQUES["personality"][0]
    assert freely(listing) == ALLOWED
    assert under("landlock", listing, []) == "EACCES"
    assert under("seccomp", listing, []) == ALLOWED
    call = lambda: personality(None)  # type: ignore[arg-type] # noqa: E731 - it needs no world
    assert freely(call) == ALLOWED
    assert under("landlock", call, []) == ALLOWED
    assert under("seccomp", call, []) == "EPERM"
    assert under("broker", call, [("modify", tmp_path)]) == ALLOWED
