"""`sdk.tasks`: work in threads and in children keeps the guard that it was started under."""

from __future__ import annotations

import asyncio
import json
import json.encoder
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from sdk.host import Host, rule

import democrai_osguard_launcher.warm_client as _client  # for an attack to find
from democrai_osguard import runtime, sdk

if TYPE_CHECKING:
    from pathlib import Path

RUN = """
import asyncio
from democrai_osguard import sdk

async def run(command, given, options):
    process = await sdk.tasks.run_subprocess(
        *command, stdin=sdk.tasks.PIPE, stdout=sdk.tasks.PIPE, stderr=sdk.tasks.PIPE, **options)
    out, err = await process.communicate(given)
    return process.returncode, out.decode(), err.decode(), process.missing

def main(*command, given=None, **options):
    return asyncio.run(run(command, given, options))
"""
SHELL = ("sh", "true", "cat", "env", "sleep", "printenv", "pwd", "head", "kill")
assert _client.__name__ in sys.modules
IN_THE_KERNEL = pytest.mark.needs("landlock", "seccomp")


def programs(*names: str) -> tuple[dict[str, str], ...]:
    return tuple(rule("system_dependency", "execute", name) for name in names)


def run(
    host: Host, *command: object, access: tuple[dict[str, str], ...] = (), **options: object
) -> Any:  # noqa: ANN401 - what the module's function returns
    main = host.load(RUN)
    with host.guard(access=(*programs(*SHELL), *access)):
        return main(*map(str, command), **options)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let children be started without the launcher."""
    monkeypatch.setenv("DEMOCRAI_SANDBOX_OS_ENABLED", "false")


@pytest.fixture(params=["launcher", pytest.param("plain", id="plain")])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setenv("DEMOCRAI_SANDBOX_OS_ENABLED", "false")


def test_blocking_work_runs_elsewhere_and_under_the_same_guard(host: Host) -> None:
    main = host.load("""
        import asyncio, threading
        from democrai_osguard import current_guard, sdk

        def work(path, *, mode):
            try:
                open(path, mode)
            except PermissionError as error:
                return threading.get_ident(), str(current_guard().subject), error.code

        def main(path):
            return threading.get_ident(), asyncio.run(sdk.tasks.run_blocking(work, path, mode="r"))
    """)
    with host.guard():
        caller, (worker, subject, code) = main(str(host.outside / "file"))
    assert caller != worker
    assert (subject, code) == ("module:notes", "sandbox_filesystem_denied")


@IN_THE_KERNEL
@pytest.mark.usefixtures("either")
class TestAChild:
    """What holds with the launcher and without it."""

    def test_it_is_started_where_a_plain_subprocess_is_refused(self, host: Host) -> None:
        assert run(host, "cat", given=b"hello")[:2] == (0, "hello")
        main = host.load("import subprocess\ndef main(): subprocess.run(['cat'])")
        with host.guard(access=programs("cat")), pytest.raises(PermissionError) as caught:
            main()
        assert str(caught.value) == "sandbox_subprocess_denied:subprocess.run"

    def test_a_program_that_is_not_declared_is_not_executed(self, host: Host) -> None:
        with pytest.raises(PermissionError, match="sandbox_filesystem_execute_denied:notes:"):
            run(host, "tail", "/dev/null")

    def test_exit_codes_and_signals_are_told(self, host: Host) -> None:
        assert run(host, "sh", "-c", "exit 7")[0] == 7
        assert run(host, "sh", "-c", "kill -9 $$")[0] == -9

    def test_a_missing_program_and_folder_are_errors(self, host: Host) -> None:
        with pytest.raises(FileNotFoundError):
            run(host, "no-such-program")
        with pytest.raises((OSError, sdk.tasks.LaunchRefused)):
            run(host, "pwd", cwd=str(host.folder / "notes/none"))
        with pytest.raises(PermissionError):
            run(host, "pwd", cwd=str(host.outside))

    def test_it_gets_the_guard_s_variables_whatever_env_says(self, host: Host) -> None:
        env = {
            "PATH": os.environ["PATH"], "OWN": "1", "DEMOCRAI_USER_ID": "0",
            "DEMOCRAI_ACCESS": "[]", "DEMOCRAI_NETWORK_SUBJECT": "other",
            "DEMOCRAI_STATE_DIR": "/tmp", "DEMOCRAI_SANDBOX_OS_ENABLED": "true",
        }  # fmt: skip
        declared = rule("filesystem", "read", host.outside)
        _, out, _, _ = run(host, "env", env=env, access=(declared,))
        found = dict(line.split("=", 1) for line in out.splitlines())
        own = {name: value for name, value in found.items() if name.startswith("DEMOCRAI_")}
        access = json.loads(own.pop("DEMOCRAI_ACCESS"))
        assert declared in access
        assert {each["target"] for each in access} == {
            str(host.outside), str(host.folder / "notes"), *SHELL,
        }  # fmt: skip
        assert own == {
            "DEMOCRAI_NETWORK_SUBJECT": "notes", "DEMOCRAI_NETWORK_SUBJECT_KIND": "module",
            "DEMOCRAI_USER_ID": "7", "DEMOCRAI_ORGANIZATION_ID": "3",
            "DEMOCRAI_SESSION_KEY": "s-1",
        }  # fmt: skip
        assert found["OWN"] == "1"

    def test_without_a_session_there_is_no_session_variable(self, host: Host) -> None:
        main = host.load(RUN)
        with host.guard(access=programs("env"), session_key=None, organization_id=None):
            _, out, _, _ = main("env")
        assert "DEMOCRAI_USER_ID=7" in out
        assert "DEMOCRAI_SESSION_KEY" not in out
        assert "DEMOCRAI_ORGANIZATION_ID" not in out

    def test_a_python_child_continues_the_guard(self, host: Host) -> None:
        script = (
            "from democrai_osguard import current_guard, process_guard_from_env as g\n"
            "with g():\n"
            "    info = current_guard(); print(info.subject, info.session_key)\n"
            f"    print(open({str(host.outside / 'file')!r}).read())\n"
            "    try: open('/etc/passwd')\n"
            "    except PermissionError as error: print(error.code)\n"
        )
        python = os.path.realpath(sys.executable)
        access = (
            rule("filesystem", "execute", python), rule("filesystem", "read", host.outside),
            *(rule("filesystem", "read", path) for path in filter(os.path.isdir, sys.path)),
        )  # fmt: skip
        code, out, err, _ = run(host, sys.executable, "-c", script, access=access)
        assert code == 0, err
        assert out.splitlines() == ["module:notes s-1", "secret", "sandbox_filesystem_denied"]

    def test_a_python_child_continues_the_chain_and_its_child_too(self, host: Host) -> None:
        grandchild = (
            "from democrai_osguard import process_guard_from_env as g\n"
            "with g() as info:\n"
            "    print(*info.subject_chain, sep=' > ')\n"
            "    try: open('/etc/passwd')\n"
            "    except PermissionError as error: print(error.chain)\n"
        )
        script = (
            "import os, subprocess, sys\n"
            f"subprocess.run([sys.executable, '-c', {grandchild!r}], check=True, text=True)\n"
        )
        main = host.load(RUN)
        python = os.path.realpath(sys.executable)
        access = (
            rule("filesystem", "execute", python),
            *(rule("filesystem", "read", path) for path in filter(os.path.isdir, sys.path)),
        )
        identity = {"user_id": "7", "organization_id": "3", "session_key": "s-1"}
        with (
            host.guard(access=access),
            runtime.pipeline_context("daily", {}, **identity),
            runtime.agent_context("helper", {}, **identity),
            runtime.tool_context("reader", {}, **identity),
        ):
            code, out, err, _ = main(sys.executable, "-c", script)
        assert code == 0, err
        path = ("module:notes", "pipeline:daily", "agent:helper", "tool:reader")
        assert out.splitlines() == [" > ".join(path), str(path)]

    def test_one_that_takes_too_long_is_killed(self, host: Host) -> None:
        with pytest.raises(TimeoutError):
            run(host, "sleep", "1000", timeout=0.2)

    def test_one_that_writes_too_much_is_killed_and_what_it_wrote_is_there(
        self, host: Host
    ) -> None:
        loop = "while :; do echo 0123456789; done"
        with pytest.raises(sdk.tasks.OutputTooLarge) as caught:
            run(host, "sh", "-c", loop, max_output=100_000)
        assert len(caught.value.output) > 100_000
        assert caught.value.code == "sandbox_output_too_large"
        assert run(host, "sh", "-c", "echo few", max_output=100_000)[1] == "few\n"

    def test_streams_are_those_of_asyncio(self, host: Host) -> None:
        main = host.load("""
            import asyncio
            from democrai_osguard import sdk
            from democrai_osguard.sdk.tasks import DEVNULL, PIPE, STDOUT

            async def talk():
                process = await sdk.tasks.run_subprocess("cat", stdin=PIPE, stdout=PIPE)
                process.stdin.write(b"one\\n")
                await process.stdin.drain()
                first = await process.stdout.readline()
                alive = process.returncode
                process.stdin.write_eof()
                rest = await process.stdout.read()
                await process.wait()
                return first, alive, rest, process.returncode, process.stderr

            async def both():
                process = await sdk.tasks.run_subprocess(
                    "sh", "-c", "echo out; echo err >&2", stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
                return sorted((await process.communicate())[0].split())

            async def ended():
                process = await sdk.tasks.run_subprocess("sleep", "1000", stdin=DEVNULL)
                process.terminate()
                code = await process.wait()
                process.kill()
                return code

            def main():
                return asyncio.run(talk()), asyncio.run(both()), asyncio.run(ended())
        """)
        with host.guard(access=programs(*SHELL)):
            assert main() == ((b"one\n", None, b"", 0, None), [b"err", b"out"], -15)

    def test_the_synchronous_form_does_the_same(self, host: Host) -> None:
        main = host.load("""
            from democrai_osguard import sdk

            def main(*command, **options):
                return sdk.tasks.run_subprocess_sync(*command, **options)
        """)
        with host.guard(access=programs(*SHELL)):
            done = main("cat", input=b"hello")
            assert (done.returncode, done.stdout, done.args) == (0, b"hello", ["cat"])
            assert main("sh", "-c", "exit 3").returncode == 3
            with pytest.raises(TimeoutError):
                main("sleep", "1000", timeout=0.2)

    def test_no_descriptor_leaks_into_it(self, host: Host) -> None:
        kept = os.open(host.outside / "file", os.O_RDONLY)
        os.set_inheritable(kept, True)
        look = f"[ -e /proc/self/fd/{kept} ] && echo open || echo closed"
        assert run(host, "sh", "-c", look)[1] == "closed\n"
        assert subprocess.run(
            ["sh", "-c", look], close_fds=False, capture_output=True, text=True, check=True
        ).stdout == "open\n"  # fmt: skip


def test_outside_of_a_guard_there_is_no_policy_to_run_under(host: Host) -> None:
    with pytest.raises(sdk.access.NoSubject):
        asyncio.run(sdk.tasks.run_subprocess("true"))
    with host.guard():
        pass  # from here on the guard is installed
    with pytest.raises(sdk.access.NoSubject):
        asyncio.run(sdk.tasks.run_subprocess("true"))


@IN_THE_KERNEL
def test_the_kernel_holds_the_child_to_the_guard_s_rules(host: Host) -> None:
    secret = host.outside / "file"
    code, out, _, missing = run(host, "cat", secret)
    assert (code, out, missing) == (1, "", ())
    code, out, _, _ = run(host, "cat", secret, access=(rule("filesystem", "read", secret),))
    assert (code, out) == (0, "secret")
    new = host.folder / "temp/new"
    assert run(host, "sh", "-c", f"echo made > {new}")[0] == 0
    assert new.read_text() == "made\n"


@IN_THE_KERNEL
@pytest.mark.usefixtures("plain")
def test_without_the_launcher_nothing_below_python_holds_it_and_it_says_so(host: Host) -> None:
    code, out, _, missing = run(host, "cat", host.outside / "file")
    assert (code, out) == (0, "secret")
    assert missing == ("the operating system's layers are switched off",)


@IN_THE_KERNEL
def test_a_broad_rule_does_not_open_the_store_to_a_child(host: Host) -> None:
    assert host.service.list_requests() == []  # the store is there
    # A folder of this test alone: all beside the store is listed, and elsewhere that may be a lot.
    everything = (rule("filesystem", "read", host.folder),)
    state = host.folder / "state"
    assert run(host, "cat", host.outside / "file", access=everything)[1] == "secret"
    assert run(host, "cat", state / "approvals/approvals.sqlite3", access=everything)[0] == 1
    assert run(host, "cat", state / "keys/resume.keys", access=everything)[0] == 1


@IN_THE_KERNEL
def test_the_settings_open_more_paths_and_switch_layers_off(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = "DEMOCRAI_SANDBOX_OS_LANDLOCK_"
    monkeypatch.setenv(f"{prefix}EXTRA_READ_PATHS", str(host.outside))
    monkeypatch.setenv(f"{prefix}EXTRA_WRITE_PATHS", str(host.outside / "more"))
    (host.outside / "more").mkdir()
    assert run(host, "cat", host.outside / "file")[1] == "secret"
    assert run(host, "sh", "-c", f"echo x > {host.outside}/more/new")[0] == 0
    assert run(host, "sh", "-c", f"echo x > {host.outside}/new")[0] != 0


@IN_THE_KERNEL
@pytest.mark.parametrize("layer", ["landlock", "seccomp"])
def test_a_layer_that_is_switched_off_is_missing_and_said_so(
    host: Host, monkeypatch: pytest.MonkeyPatch, layer: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(f"DEMOCRAI_SANDBOX_OS_{layer.upper()}_ENABLED", "off")
    code, out, _, missing = run(host, "cat", host.outside / "file")
    assert any(f"sandbox.os.{layer}.enabled is switched off" in line for line in missing)
    assert not any("kernel" in line for line in missing)
    assert any("does not hold" in record.getMessage() for record in caplog.records)
    assert (code, out) == ((0, "secret") if layer == "landlock" else (1, ""))


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("level", ["partial", "full"])
def test_with_all_layers_switched_off_nothing_runs_where_any_is_required(
    host: Host, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setenv("DEMOCRAI_SANDBOX_OS_REQUIRE", level)
    made = host.folder / "temp/made"
    with pytest.raises(sdk.tasks.LaunchRefused) as caught:
        run(host, "sh", "-c", f"echo made > {made}")
    assert str(caught.value) == (
        f"sandbox_launch_refused: refused: enforcement would be none, not {level}:"
        " sandbox.os.enabled switches the operating system's layers off"
    )
    assert not made.exists()


@IN_THE_KERNEL
@pytest.mark.parametrize("layer", ["landlock", "seccomp"])
def test_where_everything_is_required_less_runs_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch, layer: str
) -> None:
    monkeypatch.setenv("DEMOCRAI_SANDBOX_OS_REQUIRE", "full")
    assert run(host, "cat", given=b"x")[1] == "x"
    assert len(os.sched_getaffinity(0)) > 0
    # The settings are read once, so that the second case needs a process of its own.
    script = host.folder / "script.py"
    script.write_text(_REQUIRED)
    environment = {
        **os.environ, f"DEMOCRAI_SANDBOX_OS_{layer.upper()}_ENABLED": "no",
        "DEMOCRAI_SANDBOX_OS_REQUIRE": "full",
    }  # fmt: skip
    done = _python(script, environment)
    assert done.startswith("sandbox_launch_refused: refused: enforcement would be partial")


_REQUIRED = """
import asyncio
from democrai_osguard import process_guard_context, sdk
with process_guard_context("m", "module", [
    {"resource_type": "system_dependency", "operation": "execute", "target": "cat"}]):
    try:
        asyncio.run(sdk.tasks.run_subprocess("cat"))
    except sdk.tasks.LaunchRefused as error:
        print(error)
"""


def _python(script: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@IN_THE_KERNEL
def test_a_launcher_that_died_is_started_again(host: Host) -> None:
    assert run(host, "cat", given=b"1")[1] == "1"
    children = [
        int(name) for name in os.listdir("/proc")
        if name.isdigit() and _parent(name) == os.getpid() and "warm" in _line(name)
    ]  # fmt: skip
    (warm,) = children
    os.kill(warm, 9)
    os.waitid(os.P_PID, warm, os.WEXITED | os.WNOWAIT)  # dead, and still to be waited for
    assert run(host, "cat", given=b"2")[1] == "2"


def _parent(process: str) -> int:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _line(process: str) -> str:
    with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:
        return file.read()


ATTACKS = {
    "a patched client": (
        "import sys\nw = sys.modules['democrai_osguard_launcher.warm_client']\n"
        "w.WarmLauncher.launch = lambda self, request, *a: 1 / 0"
    ),
    "a patched encoder": (
        "import json, json.encoder\n"
        "json.dumps = json.encoder.encode_basestring_ascii = lambda *a, **k: '\"/\"'"
    ),
    "a patched listing": "import os; os.listdir = lambda *a: ['/']",
    "settings of its own": (
        "import democrai_osguard.settings as s, os\n"
        "s.load_settings = lambda *a: s.OsSettings(enabled=False)\n"
        "os.environ['XDG_CONFIG_HOME'] = '/tmp'"
    ),
    "odd words": (
        "from democrai_osguard.guard.installation import doors\n"
        "class Odd(str):\n    def startswith(self, *a): return True\n"
        "found = doors['start_task']([Odd('cat'), SECRET], None, None, [0, 1, 2])\n"
        "assert isinstance(found, TypeError), found"
    ),
}


@IN_THE_KERNEL
@pytest.mark.parametrize("attack", ATTACKS)
def test_guarded_code_does_not_widen_what_holds_its_child(host: Host, attack: str) -> None:
    body = "\n".join(f"    {line}" for line in ATTACKS[attack].splitlines())
    run = RUN.replace("def main(", "def start(")
    attempt = host.load(f"""{run}
def attack(SECRET):
{body}

def main(secret):
    attack(secret)
    return start("cat", secret)
""")
    before = json.dumps, json.encoder.encode_basestring_ascii
    with host.guard(access=programs("cat")):
        code, out, _, _ = attempt(str(host.outside / "file"))
    # The report of this test is written with them.
    json.dumps, json.encoder.encode_basestring_ascii = before
    assert (code, out) == (1, "")
