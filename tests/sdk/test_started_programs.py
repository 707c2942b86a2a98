"""What the guard judges is what is started: by the launcher, and without it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sdk.host import rule
from sdk.test_child_processes import IN_THE_KERNEL, either, run

if TYPE_CHECKING:
    from sdk.host import Host

__all__ = ["either"]
SH, ENV = os.path.realpath("/bin/sh"), os.path.realpath("/usr/bin/env")
EITHER_WAY = pytest.mark.usefixtures("either")
pytestmark = IN_THE_KERNEL


@pytest.fixture
def granted(host: Host) -> Path:
    """Make two programs of one name: one in a folder to execute in, one beside it."""
    place = host.folder / "granted"
    (place / "deep").mkdir(parents=True)
    for folder in (place, host.folder):
        script(folder / "prog", f"#!{SH}", f"echo {folder.name}")
    return place


def script(file: Path, *lines: str) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines))
    file.chmod(0o755)
    return file


def output(host: Host, granted: Path, *command: object, **options: object) -> str:
    """Return what a command writes, or the code of its refusal."""
    access = [rule("filesystem", "execute", place) for place in (granted, SH, ENV)]
    access += [rule("filesystem", "read", host.folder)]
    try:
        return str(run(host, *command, access=tuple(access), **options)[1]).strip()
    except PermissionError as error:
        return str(getattr(error, "code", error))


@EITHER_WAY
def test_a_folder_of_path_that_climbs_leads_where_it_leads(host: Host, granted: Path) -> None:
    (host.folder / "link").symlink_to(granted / "deep")
    env = {"PATH": f"{host.folder}/link/.."}
    assert output(host, granted, "prog", env=env) == "granted"
    (host.folder / "other").symlink_to(host.outside)
    env = {"PATH": f"{host.folder}/other/.."}
    assert output(host, granted, "prog", env=env) == "sandbox_filesystem_execute_denied"


@EITHER_WAY
def test_an_empty_folder_of_path_is_this_one(
    host: Host, granted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(granted)
    assert output(host, granted, "prog", env={"PATH": f":{host.folder}"}) == "granted"


@EITHER_WAY
def test_the_name_of_the_command_stays(host: Host, granted: Path) -> None:
    (granted / "alias").symlink_to(SH)
    shown = output(host, granted, granted / "alias", "-c", "echo $0")
    assert shown == str(granted / "alias")


@EITHER_WAY
def test_a_program_is_looked_for_where_the_child_goes_first(host: Host, granted: Path) -> None:
    assert output(host, granted, "./prog", cwd=str(granted)) == "granted"
    denied = "sandbox_filesystem_execute_denied"
    assert output(host, granted, "./prog", cwd=str(host.folder)) == denied


@EITHER_WAY
@pytest.mark.parametrize("words", ["-S {}", "-S -i {}", "-S X=1 {}", "-i {}", "{} x"])
def test_what_env_would_start_is_judged(host: Host, granted: Path, words: str) -> None:
    found = script(granted / "script", f"#!/usr/bin/env {words.format(host.folder / 'prog')}")
    assert output(host, granted, found) == "sandbox_filesystem_execute_denied"


@EITHER_WAY
def test_env_starts_what_is_granted(host: Host, granted: Path) -> None:
    found = script(granted / "script", f"#!/usr/bin/env -S {granted / 'prog'} x")
    assert output(host, granted, found) == "granted"


@EITHER_WAY
def test_a_python_of_an_environment_finds_its_packages(host: Host, granted: Path) -> None:
    env = granted / "venv"
    (env / "bin").mkdir(parents=True)
    (env / "bin/python").symlink_to(os.path.realpath(sys.executable))
    packages = env / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    packages.mkdir(parents=True)
    (packages / "mine.py").write_text("print('mine')")
    home = Path(os.path.realpath(sys.executable)).parent
    (env / "pyvenv.cfg").write_text(f"home = {home}\n")
    python = rule("filesystem", "execute", os.path.realpath(sys.executable))
    found = run(host, env / "bin/python", "-c", "import mine", access=(python,))
    assert found[1:3] == ("mine\n", "")


class TestInTheKernel:
    """What only the launcher holds."""

    def test_a_link_beside_a_python_opens_nothing(self, host: Host) -> None:
        env = host.folder / "notes/env"
        (env / "bin").mkdir(parents=True)
        (env / "bin/python").symlink_to(os.path.realpath(sys.executable))
        (env / "lib").symlink_to(host.outside)
        python = rule("filesystem", "execute", os.path.realpath(sys.executable))
        code = f"print(open({str(host.outside / 'file')!r}).read())"
        found = run(host, env / "bin/python", "-c", code, access=(python,))
        assert found[1] == ""

    def test_a_dependency_of_ones_own_folder_is_not_started(self, host: Host) -> None:
        script(host.outside / "tool", f"#!{SH}", "echo mine")
        env = {"PATH": f"{host.outside}:/usr/bin:/bin"}
        tool = rule("system_dependency", "execute", "tool")
        found = run(host, "sh", "-c", "tool", env=env, access=(tool,))
        assert found[1] == ""
