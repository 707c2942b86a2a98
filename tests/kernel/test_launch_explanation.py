"""What `--explain` says beforehand, and the receipt afterwards, is what the command finds."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from democrai_osguard_launcher import program

if TYPE_CHECKING:
    from pathlib import Path

    from kernel.conftest import Launch

LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
pytestmark = pytest.mark.needs("landlock", "seccomp")


def test_explain_runs_nothing_and_its_json_can_be_read(launch: Launch, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    result = launch("--explain", "--json", "--read", tmp_path, "--", "touch", marker)
    document = json.loads(result.stdout)
    assert document["rules"][0]["label"] == "exact"
    assert document["level"] == "full"
    assert not marker.exists()


@pytest.mark.parametrize(("more", "said", "code"), [
    ((), "runs what may be read", 0), (("--create", "/nonexistent/new"), "refused", 126),
])  # fmt: skip
def test_what_is_said_of_the_loader_is_what_it_does(
    launch: Launch, tmp_path: Path, more: tuple[str, ...], said: str, code: int
) -> None:
    (loader,) = {os.path.realpath(path) for path in LOADERS if os.path.exists(path)}
    shutil.copy("/usr/bin/true", tmp_path / "copy")
    rules = ("--read", str(tmp_path), *more)
    assert f"\nloader as a program: {said}" in launch(*rules, "--explain").stdout
    assert launch(*rules, "--", "env", loader, tmp_path / "copy").returncode == code
    assert launch(*rules, "--", "env", tmp_path / "copy").returncode == 126  # the control


def test_explain_says_what_the_command_would_inherit(launch: Launch) -> None:
    kept, closed = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
    options = ["--keep-fd", str(kept), "--keep-env", "MY_TOKEN", "--limit", "files=64", "--explain"]
    secrets = {"MY_TOKEN": "value-1", "OTHER_TOKEN": "value-2", "DEMOCRAI_STATE_DIR": "/x"}
    try:
        shown = launch(*options, "--json", keep=[kept, closed], environment=secrets)
        text = launch(*options, keep=[kept, closed], environment=secrets).stdout
    finally:
        os.close(kept)
        os.close(closed)
    document = json.loads(shown.stdout)
    assert document["descriptors"]["kept"] == [0, 1, 2, kept]
    assert closed in document["descriptors"]["closed"]
    environment = document["environment"]
    assert {"PATH", "MY_TOKEN"} <= set(environment["passed"])
    assert environment["asked_for"] == ["MY_TOKEN"]
    assert {"OTHER_TOKEN", "DEMOCRAI_STATE_DIR"} <= set(environment["withheld"])
    assert environment["set"] == ["DEMOCRAI_ACCESS"]
    assert document["limits"] == {"files": 64}
    assert "value-" not in shown.stdout + text
    assert f"descriptors: 0, 1, 2, {kept} kept; all others closed, such as {closed}" in text
    assert "environment, kept as asked: MY_TOKEN\n" in text
    assert "OTHER_TOKEN" in text
    assert "limits: files=64\n" in text


def test_what_is_explained_is_what_the_command_finds(launch: Launch) -> None:
    secrets = {"MY_TOKEN": "value-1", "DEMOCRAI_USER_ID": "7"}
    said = json.loads(launch("--explain", "--json", "--", "env", environment=secrets).stdout)
    found = launch("--", "env", environment=secrets).stdout.splitlines()
    told = {*said["environment"]["passed"], *said["environment"]["set"]}
    assert {line.partition("=")[0] for line in found} == told


def test_explain_names_runtime_executables_and_egress(launch: Launch) -> None:
    text = launch("--explain", "--connect", "192.0.2.1:443", "--", "sh").stdout
    lines = dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(" "))
    assert lines["egress"] == "192.0.2.1:443"
    assert "/usr/lib" in lines["read without a rule"].split(", ")
    assert "/dev/null" in lines["written without a rule"].split(", ")
    assert program.locate("sh", os.environ["PATH"]) in lines["started without a rule"].split(", ")
    assert len(text.splitlines()) < 20


def test_the_receipt_says_what_the_command_inherited(launch: Launch, tmp_path: Path) -> None:
    receipt = tmp_path / "receipt"
    launch("--receipt", receipt, "--limit", "files=64", "--", "true", environment={"MY_TOKEN": "x"})
    plan = json.loads(receipt.read_text())["plan"]
    assert plan["limits"] == {"files": 64}
    assert "MY_TOKEN" in plan["environment"]["withheld"]


def test_what_is_explained_is_one_line_for_each_rule(launch: Launch) -> None:
    result = launch("--explain", "--read", "/no\nsuch\x1b[31m/path\udcff")
    assert result.returncode == 0
    assert "/no\\nsuch\\x1b[31m/path\\udcff: exact" in result.stdout
    assert "\x1b" not in result.stdout
