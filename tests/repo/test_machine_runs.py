"""How the machines are run: in turn, with an end, and with the console of what failed kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from host_features import PROBES
from vm.conftest import ABI

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBES["vagrant"] = lambda: shutil.which("vagrant")

DAY = 86400
SEEN = 'echo "$DEMOCRAI_VM_SUITE ${DEMOCRAI_VM_UPGRADE:-0} $@"'
SPEAKS = f'echo "the kernel fell" > "$DEMOCRAI_VM_FOLDER/console.log"; {SEEN}'


class Tree:
    """The script with everything else played: no image is built and no machine is booted."""

    def __init__(self, repo: Path, folder: Path) -> None:
        self.folder = folder
        for name in ("scripts", "bin", "venv/bin"):
            (folder / name).mkdir(parents=True)
        shutil.copy(repo / "scripts/test-vm", folder / "scripts/test-vm")
        for name in ("qemu-system-x86_64", "mmdebstrap", "mkfs.ext4"):
            self.play(f"bin/{name}", "exit 1")
        self.play("bin/id", "echo 0")
        self.play("bin/mktemp", f"mkdir {folder}/machine; echo {folder}/machine")
        self.play("scripts/vm-payload", "touch $2")
        self.play("scripts/vm-image", "echo /images/$1")
        self.play("venv/bin/pytest", SPEAKS)

    def play(self, name: str, script: str) -> None:
        """Let a program do this instead of what it does."""
        (self.folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (self.folder / name).chmod(0o755)

    def run(
        self,
        *words: str,
        environment: Mapping[str, str] | None = None,
        script: str = "test-vm",
    ) -> subprocess.CompletedProcess[str]:
        """Run a script, and see that it leaves no machine's folder behind."""
        running = self.start(*words, environment=environment, script=script)
        said, complained = running.communicate(timeout=120)
        assert not (self.folder / "machine").exists()
        return subprocess.CompletedProcess(words, running.returncode, said, complained)

    def start(
        self,
        *words: str,
        environment: Mapping[str, str] | None = None,
        script: str = "test-vm",
    ) -> subprocess.Popen[str]:
        """Start a script."""
        own = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "VENV": f"{self.folder}/venv"}
        return subprocess.Popen(
            [self.folder / "scripts" / script, *words], env=own | dict(environment or {}),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


@pytest.fixture
def tree(repo: Path, tmp_path: Path) -> Tree:
    return Tree(repo, tmp_path)


def kept(tree: Tree) -> Path:
    return tree.folder / "build/vm/sid-console.log"


def test_all_of_it_on_one_machine_in_this_order_the_upgrade_too(tree: Tree) -> None:
    done = tree.run("sid")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("sid 1 ")]
    names = [Path(word).stem for word in line.split() if word.startswith("tests/")]
    assert names == [
        f"test_machine_{name}"
        for name in ("installed", "abi", "trouble", "suites", "escapes", "power", "removed")
    ]


def test_every_file_of_tests_is_run(tree: Tree, repo: Path) -> None:
    done = tree.run("sid")
    assert [
        place.name for place in repo.glob("tests/vm/test_*.py") if place.name not in done.stdout
    ] == []


def test_what_fails_fails_and_its_console_is_kept(tree: Tree) -> None:
    tree.play("venv/bin/pytest", f"{SPEAKS}; exit 1")
    done = tree.run("--quick", "sid")
    assert done.returncode == 1
    assert "failed: sid" in done.stderr
    assert kept(tree).read_text(encoding="utf-8") == "the kernel fell\n"


def test_what_passes_leaves_no_console(tree: Tree) -> None:
    assert tree.run("--quick", "sid").returncode == 0
    assert not kept(tree).exists()


def test_a_run_that_does_not_end_is_ended_and_its_console_is_kept(tree: Tree) -> None:
    tree.play("venv/bin/pytest", f"{SPEAKS}; exec sleep 600")
    done = tree.run("--quick", "sid", environment={"DEMOCRAI_VM_MINUTES": "0"})
    assert done.returncode == 1
    assert "sid was not done after 0 minutes" in done.stdout
    assert kept(tree).exists()


def test_whoever_ends_it_ends_the_machine_too_and_keeps_its_console(tree: Tree) -> None:
    tree.play("venv/bin/pytest", f"{SPEAKS}; exec sleep 600")
    running = tree.start("--quick", "sid")
    assert running.stdout is not None
    while not running.stdout.readline().startswith("sid 0 "):
        assert running.poll() is None
    running.terminate()
    running.communicate(timeout=120)  # the machine holds these pipes too: all of them are closed
    assert running.returncode == 1
    assert kept(tree).exists()
    assert not (tree.folder / "machine").exists()


@pytest.mark.parametrize("script", ["vm-image", "vm-payload"])
def test_what_cannot_be_built_is_a_failure(tree: Tree, script: str) -> None:
    tree.play(f"scripts/{script}", "exit 1")
    assert tree.run("--quick", "sid").returncode == 1


def test_three_days_see_three_kernels(tree: Tree) -> None:
    seen = []
    for day in range(3):
        tree.play("bin/date", f"echo {1_800_000_000 + day * DAY}")
        seen.append(tree.run("--quick", "turn").stdout.split("testing on ")[1].split(";")[0])
    assert sorted(seen) == ["bookworm", "sid", "trixie"]


def test_some_of_it_is_chosen_by_name_and_keeps_its_order(tree: Tree) -> None:
    said = tree.run("--only", "escapes,abi", "sid").stdout
    assert said.index("test_machine_abi.py") < said.index("test_machine_escapes.py")
    assert "test_machine_power.py" not in said
    assert "sid 0 " in said, "an upgrade that nobody looks at costs minutes"


@pytest.mark.parametrize("words", [("--nothing",), ("--only",), ("--only", "nothing"), ("etch",)])
def test_what_it_does_not_know_it_refuses(tree: Tree, words: tuple[str, ...]) -> None:
    done = tree.run(*words)
    assert done.returncode == 1
    assert done.stderr.startswith("test-vm: ")


def test_vagrant_has_every_suite_and_prepares_it_with_the_same_script(repo: Path) -> None:
    said = (repo / "Vagrantfile").read_text(encoding="utf-8")
    assert [suite for suite in ABI if f'"{suite}" => "debian/' not in said] == []
    assert '"shell", path: "scripts/provision", args: [suite]' in said


def _vagrant_accepts(folder: Path) -> bool:
    """Tell what Vagrant says of the file there, whatever machines this host could run."""
    done = subprocess.run(
        ["vagrant", "validate", "--ignore-provider"],
        cwd=folder,
        env={**os.environ, "VAGRANT_HOME": f"{folder}/home", "VAGRANT_CHECKPOINT_DISABLE": "1"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    return done.returncode == 0


@pytest.mark.needs("vagrant")
def test_vagrant_accepts_its_file_and_finds_the_script(repo: Path, tree: Tree) -> None:
    for name in ("Vagrantfile", ".gitignore"):
        shutil.copy(repo / name, tree.folder / name)
    assert not _vagrant_accepts(tree.folder), "there is no script yet"
    shutil.copy(repo / "scripts/provision", tree.folder / "scripts/provision")
    assert _vagrant_accepts(tree.folder)


def test_what_it_prepares_has_the_packages_of_the_machines(repo: Path, tree: Tree) -> None:
    for name in ("scripts/provision", "tests/vm/debian-packages.txt"):
        (tree.folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repo / name, tree.folder / name)
    tree.play("bin/apt-get", 'echo "apt-get $@" >&2')
    done = tree.run(script="provision")
    assert done.returncode == 0, done.stderr
    asked = done.stderr.split("apt-get install ")[1].split()
    listed = (repo / "tests/vm/debian-packages.txt").read_text(encoding="utf-8").splitlines()
    wanted = {line.split()[0] for line in listed if not line.startswith("#")}
    assert wanted - set(asked) == {"linux-image-cloud-amd64"}, "the machine has its own kernel"
