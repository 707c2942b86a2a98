"""`democrai-osguard explain` answers in words, in JSON and by exit code."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from command_line import osguard

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    rules = [
        {"resource_type": "filesystem", "operation": "read", "target": "inbox"},
        {
            "resource_type": "network",
            "operation": "receive",
            "target": "https://api.example.com/v1",
        },
        {"resource_type": "system_dependency", "operation": "execute", "target": "ffmpeg"},
    ]
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"access": rules}))
    return path


def explain(manifest: Path, *words: str) -> tuple[int, str]:
    done = osguard("explain", "--manifest", str(manifest), "--subject", "module:notes", *words)
    return done.returncode, done.stdout + done.stderr


def test_an_allowed_act_exits_with_0_and_names_the_rule(manifest: Path) -> None:
    code, text = explain(manifest, "filesystem", "read", f"{manifest.parent}/inbox/a")
    assert code == 0
    assert text.startswith("allowed: ")
    assert f"module:notes declares filesystem read {manifest.parent}/inbox" in text


def test_an_undeclared_act_exits_with_2_and_says_what_to_declare(manifest: Path) -> None:
    code, text = explain(manifest, "network", "send", "https://API.example.com/v1/mail")
    assert code == 2
    assert text.startswith("requires approval: network send https://api.example.com/v1/mail")
    assert '"operation": "send", "target": "https://api.example.com/v1/mail"' in text


def test_an_unsafe_path_is_denied_with_exit_code_1(manifest: Path) -> None:
    code, text = explain(manifest, "filesystem", "read", f"{manifest.parent}/none/../inbox/a")
    assert code == 1
    assert "cannot be resolved safely" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("network", "read", "example.com"), "'read' is not an operation of network"),
        (("network", "connect", "user@example.com"), "user information"),
        (("network", "connect", ""), "network_target_missing"),
        (
            ("filesystem", "write", "/srv"),
            "'write' is not an operation of filesystem (read, create, modify, delete, execute)",
        ),
        (("url", "receive", "https://example.com"), "url"),
        (("filesystem", "read"), "TARGET"),
        (("filesystem", "read", "/a", "/b"), "/b"),
    ],
)
def test_a_question_that_makes_no_sense_exits_with_64(
    manifest: Path, words: tuple[str, ...], says: str
) -> None:
    code, text = explain(manifest, *words)
    assert code == 64
    assert says in text
    assert "Traceback" not in text


@pytest.mark.parametrize("subject", ["notes", "robot:notes", "module:", ":notes", "module: notes"])
def test_a_bad_subject_exits_with_64(manifest: Path, subject: str) -> None:
    arguments = ("--subject", subject, "filesystem", "read", "/srv")
    assert osguard("explain", "--manifest", str(manifest), *arguments).returncode == 64


def test_a_broken_manifest_exits_with_64_and_names_the_place(tmp_path: Path) -> None:
    broken = tmp_path / "manifest.json"
    broken.write_text(
        '{"access": [{"resource_type": "filesystem", "operation": "write", "target": "/"}]}'
    )
    code, text = explain(broken, "filesystem", "read", "/srv")
    assert code == 64
    assert "access[0].operation: 'write' is not an operation of filesystem" in text


def test_json_carries_the_decision_the_rule_and_the_chain(manifest: Path) -> None:
    code, text = explain(manifest, "--json", "system_dependency", "execute", "ffmpeg")
    document = json.loads(text)
    assert code == 0
    assert document["decision"] == "allow"
    assert document["code"] == "sandbox_allowed"
    assert document["rule"]["target"] == "ffmpeg"
    assert document["chain"] == ["module:notes"]


def test_a_tool_that_declares_less_narrows_its_module(manifest: Path, tmp_path: Path) -> None:
    own = tmp_path / "tool.json"
    rule = {"resource_type": "filesystem", "operation": "read", "target": "inbox/today"}
    own.write_text(json.dumps({"access": [rule]}))
    tool = ("--manifest", str(own), "--subject", "tool:reader")
    inside = explain(manifest, *tool, "filesystem", "read", f"{tmp_path}/inbox/today")
    outside = explain(manifest, *tool, "filesystem", "read", f"{tmp_path}/inbox/tomorrow")
    assert inside[0] == 0
    assert outside[0] == 2
    assert "module:notes declares" in outside[1]
    assert "module:notes > tool:reader" in outside[1]


def test_the_phase_install_reaches_the_package_indexes(tmp_path: Path) -> None:
    engine = tmp_path / "engine.json"
    engine.write_text(json.dumps({"install": {}, "runtime": {}}))
    index = {"PIP_INDEX_URL": "https://index.example.com/simple", "PIP_CONFIG_FILE": os.devnull}
    act = ("network", "receive", "https://index.example.com/simple/x")
    words = ("explain", "--manifest", str(engine), "--subject", "engine:e", "--phase")
    assert osguard(*words, "install", *act, **index).returncode == 0
    assert osguard(*words, "runtime", *act, **index).returncode == 2


def test_control_characters_in_a_target_never_reach_the_terminal(manifest: Path) -> None:
    code, text = explain(manifest, "filesystem", "read", "/srv/\x1b[31mred\n\x07")
    assert code == 2
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[31mred\\n\\x07" in text
