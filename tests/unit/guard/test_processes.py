"""Processes where they are allowed: the program is judged, the environment is the runtime's."""

from __future__ import annotations

import json
import multiprocessing
import os
import pty
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from guard.confined import confined

from democrai_osguard.access import Rule
from democrai_osguard.guard import process_guard_context
from democrai_osguard.guard.sealed.processes import first_word

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_TRUE = os.path.realpath("/bin/true")
_ENV = os.path.realpath("/usr/bin/env")
_SH = os.path.realpath("/bin/sh")


def _execute(*programs: str) -> list[Rule]:
    return [Rule("filesystem", "execute", program) for program in programs]  # type: ignore[arg-type]


def guarded(rules: list[Rule], work: Callable[[], object]) -> Any:  # noqa: ANN401 - what the work returns
    """Return what the work returns, or its refusal, where processes are allowed."""

    def check() -> object:
        with process_guard_context("m", "module", rules, allow_subprocess=True, user_id="u"):
            try:
                return work()
            except PermissionError as error:
                return str(error)

    return confined(check)


def test_a_program_needs_its_own_right() -> None:
    run = lambda: subprocess.run(["true"], check=False).returncode  # noqa: E731 - the act itself
    assert guarded(_execute(_TRUE), run) == 0
    denied = f"sandbox_filesystem_execute_denied:m:{_TRUE}"
    assert guarded([], run) == denied
    assert guarded([], lambda: os.posix_spawn("/bin/true", ["true"], {})) == denied
    assert guarded([], lambda: os.execv("/bin/true", ["true"])) == denied  # noqa: S606


POOLS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "ProcessPoolExecutor.submit": (
        lambda: ProcessPoolExecutor(1, multiprocessing.get_context("fork")),
        lambda pool: pool.submit(os.getpid).result(),
    ),
    "multiprocessing.Pool": (
        lambda: multiprocessing.get_context("fork").Pool(1),
        lambda pool: pool.apply(os.getpid),
    ),
}


@pytest.mark.parametrize("name", POOLS)
def test_an_older_pool_of_processes_takes_no_work_of_guarded_code(name: str) -> None:
    make, use = POOLS[name]

    def check() -> object:
        with make() as pool:
            outside = [use(pool)]
            with process_guard_context("m", "module"):
                try:
                    inside: object = use(pool)
                except PermissionError as error:
                    inside = str(error)
            return [use(pool) in outside, inside]

    assert confined(check) == [True, f"sandbox_subprocess_denied:{name}"]


ENTRIES: dict[str, Callable[[], object]] = {
    "os.execv": lambda: os.execv("/bin/true", ["true"]),  # noqa: S606 - to be refused
    "os.execve": lambda: os.execve("/bin/true", ["true"], {}),  # noqa: S606
    "os.execl": lambda: os.execl("/bin/true", "true"),  # noqa: S606
    "os.execvp": lambda: os.execvp("true", ["true"]),  # noqa: S606
    "os.execlpe": lambda: os.execlpe("true", "true", {}),  # noqa: S606
    "os.spawnv": lambda: os.spawnv(os.P_WAIT, "/bin/true", ["true"]),  # noqa: S606
    "os.spawnlp": lambda: os.spawnlp(os.P_WAIT, "true", "true"),  # noqa: S606
    "os.posix_spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "os.posix_spawnp": lambda: os.posix_spawnp("true", ["true"], {}),
    "os.system": lambda: os.system("true"),  # noqa: S605
    "os.popen": lambda: os.popen("true"),  # noqa: S605
    "os.fork": os.fork,
    "os.forkpty": os.forkpty,
    "pty.fork": pty.fork,
    "pty.spawn": lambda: pty.spawn("true"),
    "subprocess.getoutput": lambda: subprocess.getoutput("true"),  # noqa: S605
    "subprocess.Popen": lambda: subprocess.Popen(["true"]),
    "multiprocessing.Process.start": lambda: multiprocessing.Process(target=print).start(),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_refusal_names_what_was_called(entry: str) -> None:
    def check() -> object:
        with process_guard_context("m", "module"):
            # Called by its name, as code does that comes later.
            owner, _, name = entry.rpartition(".")
            call = getattr(sys.modules[owner], name) if "fork" in name else ENTRIES[entry]
            with pytest.raises(PermissionError) as caught:
                call()
            return str(caught.value)

    assert confined(check) == f"sandbox_subprocess_denied:{entry}"


def test_a_dependency_by_name_is_found_in_system_folders_only(tmp_path: Path) -> None:
    rule = [Rule("system_dependency", "execute", "true")]  # type: ignore[arg-type]
    run = lambda: subprocess.run(["true"], check=False).returncode  # noqa: E731 - the act itself
    assert guarded(rule, run) == 0
    fake = tmp_path / "true"
    fake.write_bytes(b"")
    fake.chmod(0o755)
    elsewhere = {"PATH": str(tmp_path)}
    found = guarded(rule, lambda: subprocess.run(["true"], env=elsewhere, check=False).returncode)
    assert found == f"sandbox_filesystem_execute_denied:m:{fake}"


def test_the_first_word_of_a_shell_line_is_judged() -> None:
    assert guarded(_execute(_SH, _TRUE), lambda: os.system("A=1 true")) == 0  # noqa: S605 - the act itself
    refused = guarded(_execute(_SH), lambda: os.system("true && echo"))  # noqa: S605
    assert refused == f"sandbox_filesystem_execute_denied:m:{_TRUE}"
    refused = guarded(_execute(_SH), lambda: subprocess.run("true", shell=True, check=False))  # noqa: S602
    assert refused == f"sandbox_filesystem_execute_denied:m:{_TRUE}"


def test_a_shell_line_is_looked_up_where_the_shell_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("true", "false"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "program").symlink_to(f"/bin/{folder}")
    monkeypatch.setenv("PATH", str(tmp_path / "true"))
    env = {"PATH": str(tmp_path / "false")}

    def run() -> int:
        return subprocess.run("program", shell=True, env=env, check=False).returncode  # noqa: S602 - the act itself

    assert run() == 1  # the control
    false = os.path.realpath("/bin/false")
    denied = f"sandbox_filesystem_execute_denied:m:{false}"
    assert guarded(_execute(_SH, _TRUE), run) == denied
    assert guarded(_execute(_SH, false), run) == 1


def test_what_is_missing_is_missing_and_not_refused(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"")
    found = []

    def run(name: str, path: str) -> object:
        try:
            subprocess.run([name], env={"PATH": path}, check=False)
        except OSError as error:
            found.append(type(error).__name__)
            return f"{error.errno} {error.filename}"
        return None

    for name, path in (("none", "/usr/bin:/bin"), ("program", f"{tmp_path}:/bin")):
        assert guarded([], lambda: run(name, path)) == run(name, path)  # noqa: B023 - called at once
    assert found == ["FileNotFoundError", "PermissionError"]


def test_a_child_gets_files_that_its_parent_may_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    (tmp_path / "in").write_text("hello")
    cat = os.path.realpath("/bin/cat")
    out = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC

    def work() -> object:
        actions = [
            (os.POSIX_SPAWN_DUP2, 2, 9),
            (os.POSIX_SPAWN_OPEN, 0, str(tmp_path / "in"), os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.fsencode(tmp_path / "out"), out, 0o600),
            (os.POSIX_SPAWN_CLOSE, 9),
        ]
        before = os.dup(0)
        os.close(before)
        pid = os.posix_spawn(cat, ["cat"], {}, file_actions=actions, setsigmask={1}, setsid=True)
        os.waitpid(pid, 0)
        return os.dup(0) - before  # none was left open

    reading = [Rule("filesystem", "read", str(tmp_path))]  # type: ignore[arg-type] # words
    making = [Rule("filesystem", "create", str(tmp_path))]  # type: ignore[arg-type] # words
    rules = _execute(cat) + reading
    assert str(guarded(rules, work)).startswith("sandbox_filesystem_denied:")
    assert guarded(rules + making, work) == 0
    assert (tmp_path / "out").read_text() == "hello"


def test_a_script_needs_its_interpreter_too(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env true\n")
    script.chmod(0o755)
    run = lambda: subprocess.run([str(script)], check=False).returncode  # noqa: E731 - the act itself
    assert guarded(_execute(str(script)), run) == f"sandbox_filesystem_execute_denied:m:{_TRUE}"
    assert guarded(_execute(str(script), _TRUE, _ENV), run) == 0


def test_a_relative_program_is_looked_for_where_the_child_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("granted", "other"):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "program"
        program.write_text(f"#!/bin/sh\necho {folder}\n")
        program.chmod(0o755)
    monkeypatch.chdir(tmp_path / "granted")
    rules = _execute(str(tmp_path / "granted"), _SH)

    def run(command: str, cwd: object, path: str = "", *, shell: bool = False) -> object:
        env = {"PATH": path}
        return subprocess.check_output(command, cwd=cwd, env=env, shell=shell, text=True)  # type: ignore[call-overload]

    refused = f"sandbox_filesystem_execute_denied:m:{tmp_path}/other/program"
    other = tmp_path / "other"
    assert run("./program", other) == "other\n"  # the control
    assert guarded(rules, lambda: run("./program", None)) == "granted\n"
    assert guarded(rules, lambda: run("./program", other)) == refused
    assert guarded(rules, lambda: run("./program", "../other")) == refused
    assert guarded(rules, lambda: run("./program", os.fsencode(other))) == refused
    assert guarded(rules, lambda: run("program", other, ".")) == refused
    assert guarded(rules, lambda: run("./program", other, shell=True)) == refused  # noqa: S604 - the act itself
    monkeypatch.chdir(other)
    assert guarded(rules, lambda: run("./program", tmp_path / "granted")) == "granted\n"


@pytest.mark.parametrize("env", [None, {"DEMOCRAI_ACCESS": "[]", "DEMOCRAI_X": "1", "KEPT": "1"}])
def test_the_child_gets_the_runtime_s_variables(env: dict[str, str] | None) -> None:
    rules = _execute(_ENV)

    def work() -> object:
        done = subprocess.run(["/usr/bin/env"], env=env, capture_output=True, text=True, check=True)
        return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)

    found = guarded(rules, work)
    assert found["DEMOCRAI_NETWORK_SUBJECT"] == "m"
    assert found["DEMOCRAI_NETWORK_SUBJECT_KIND"] == "module"
    assert found["DEMOCRAI_USER_ID"] == "u"
    assert [item["target"] for item in json.loads(found["DEMOCRAI_ACCESS"])] == [_ENV]
    assert "DEMOCRAI_X" not in found
    assert ("KEPT" in found) is (env is not None)


@pytest.mark.parametrize(
    ("line", "word"),
    [("ls -l", "ls"), ("  A=1 B=2 ls", "ls"), ("(ls)", "ls"), ("'ls' x", "ls"), ("", None)],
)
def test_the_first_word_is_found(line: str, word: str | None) -> None:
    assert first_word(line) == word
