"""`democrai-osguard manifest` tells a sound manifest from one with problems."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from command_line import osguard

from democrai_osguard.access import SubjectType
from democrai_osguard_launcher.manifest import KINDS

if TYPE_CHECKING:
    from pathlib import Path

RULE = {"resource_type": "filesystem", "operation": "read", "target": "/srv"}
NETWORK = {"resource_type": "network"}


def _write(folder: Path, document: object) -> str:
    path = folder / "manifest.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_a_sound_manifest_is_shown_in_normal_form(tmp_path: Path) -> None:
    file = _write(tmp_path, {"access": [{**RULE, "target": "data/"}]})
    done = osguard("manifest", "check", file)
    assert done.returncode == 0
    assert f"filesystem read {tmp_path.resolve()}/data\n" in done.stdout


def test_rules_are_counted_in_plain_words(tmp_path: Path) -> None:
    for access, words in (
        ([], "0 rules"),
        ([RULE], "1 rule"),
        ([RULE, {**RULE, "target": "/a"}], "2 rules"),
    ):
        done = osguard("manifest", "check", _write(tmp_path, {"access": access}))
        assert done.stdout.splitlines()[0].endswith(f": sound; {words}")


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    file = _write(tmp_path, {"acess": [], "access": [{**RULE, "operation": "write"}, 5]})
    done = osguard("manifest", "check", file)
    assert done.returncode == 1
    assert "acess: unknown key" in done.stdout
    assert "access[0].operation: 'write' is not an operation of filesystem" in done.stdout
    assert "access[1]: expected an object" in done.stdout


def test_a_broad_root_is_accepted_with_a_warning(tmp_path: Path) -> None:
    done = osguard("manifest", "check", _write(tmp_path, {"access": [{**RULE, "target": "/"}]}))
    assert done.returncode == 0
    assert "warning: access[0].target: / is broad" in done.stdout


def test_both_phases_of_an_engine_are_checked(tmp_path: Path) -> None:
    file = _write(tmp_path, {"runtime": {"access": [RULE]}, "install": {"acces": []}})
    done = osguard("manifest", "check", file)
    assert done.returncode == 1
    assert "install.acces: unknown key" in done.stdout


def test_json_says_the_same(tmp_path: Path) -> None:
    document = json.loads(osguard("manifest", "check", "--json", _write(tmp_path, {})).stdout)
    assert document["valid"] is True
    assert document["sections"][0]["access"] == []


def test_a_file_that_is_not_there_exits_with_64(tmp_path: Path) -> None:
    assert osguard("manifest", "check", str(tmp_path / "none.json")).returncode == 64


def test_access_prints_what_a_child_gets(tmp_path: Path) -> None:
    file = _write(tmp_path, {"runtime": {"access": [RULE]}, "install": {}})
    runtime = osguard("manifest", "access", file, "--kind", "engine", "--json")
    assert json.loads(runtime.stdout) == [RULE]


def test_access_in_the_phase_install_reaches_the_package_indexes(tmp_path: Path) -> None:
    file = _write(tmp_path, {"runtime": {"access": [RULE]}, "install": {"access": [RULE]}})
    words = ("manifest", "access", file, "--phase")
    index = {"PIP_INDEX_URL": "https://index.example.com/simple", "PIP_CONFIG_FILE": os.devnull}
    python = {"resource_type": "filesystem", "operation": "execute"}
    declared, *added = json.loads(osguard(*words, "install", **index).stdout)
    assert declared == RULE
    assert added[:3] == [
        {**NETWORK, "operation": "receive", "target": "https://index.example.com"},
        {**NETWORK, "operation": "connect", "target": "index.example.com:443"},
        {**python, "target": os.path.realpath(sys.executable)},
    ]
    assert {each["operation"] for each in added[3:]} == {"read"}  # what that one is made of
    assert json.loads(osguard(*words, "runtime", **index).stdout) == [RULE]


def test_access_warns_as_check_does_and_not_in_what_it_prints(tmp_path: Path) -> None:
    done = osguard("manifest", "access", _write(tmp_path, {"access": [{**RULE, "target": "/"}]}))
    assert json.loads(done.stdout) == [{**RULE, "target": "/"}]
    assert done.stderr.startswith("democrai-osguard: warning: access[0].target: / is broad")


def test_the_launcher_knows_which_kinds_have_manifests(tmp_path: Path) -> None:
    file = _write(tmp_path, {})
    for kind in SubjectType:
        taken = osguard("manifest", "access", file, "--kind", kind).returncode == 0
        assert taken == (kind in KINDS)


def test_no_arguments_show_help_and_an_unknown_command_exits_with_64() -> None:
    assert osguard().returncode == 64
    assert "Usage:" in osguard().stderr
    assert osguard("fly").returncode == 64
    assert osguard("--help").returncode == 0
