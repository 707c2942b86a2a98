"""What the guard refuses and where it is gone around is in the audit log, whatever it was."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from approvals.cases import ADA, read
from approvals.command import osguard
from guard.confined import confined

import democrai_osguard
from democrai_osguard import Allow, RequiresApproval, guard, process_guard_context, runtime
from democrai_osguard.approvals import ApprovalService, open_service
from democrai_osguard.approvals import refusals as rates
from democrai_osguard.audit import verify
from democrai_osguard.permissions.modes import Answer, Mode, Permissions

if TYPE_CHECKING:
    from collections.abc import Callable

    from democrai_osguard.access import AccessRequest


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that everything keeps its state in."""
    monkeypatch.setenv("DEMOCRAI_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    (tmp_path / "secret").write_text("secret")
    return tmp_path / "state"


@pytest.fixture
def secret(tmp_path: Path) -> str:
    """Return a file that no rule opens."""
    return str(tmp_path / "secret")


def records(state: Path) -> list[dict[str, Any]]:
    path = state / "audit" / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def guarded(act: Callable[[], object], **options: Any) -> object:  # noqa: ANN401 - of the guard
    """Return what an act gives under a guard whose approvals are this state folder's."""

    def check() -> object:
        service = open_service()
        runtime.use_approvals(service)
        with process_guard_context("notes", "module", session_key="s-1", **options):
            found = attempt(act)
        service.close()
        return found

    return confined(check)


def attempt(act: Callable[[], object]) -> object:
    try:
        return act()
    except (PermissionError, RuntimeError) as error:
        return getattr(error, "code", str(error))


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _import_ctypes() -> None:
    sys.modules.pop("_ctypes_test", None)
    __import__("_ctypes_test")


def _set_variable() -> None:
    os.environ["DEMOCRAI_ACCESS"] = "[]"


def _connect() -> None:
    import socket  # noqa: PLC0415 - in the child only

    socket.create_connection(("192.0.2.1", 9), 1)


def _bypass() -> None:
    with democrai_osguard.process_guard_bypass_context():
        pass


def _garbage() -> object:
    import gc  # noqa: PLC0415 - in the child only

    return gc.get_objects()


REFUSED: dict[str, Callable[[], object]] = {
    "sandbox_filesystem_denied": lambda: os.stat("/etc/shadow"),
    "sandbox_filesystem_fd_denied": lambda: os.stat("shadow", dir_fd=0),
    "sandbox_network_denied": _connect,
    "sandbox_module_denied": _import_ctypes,
    "sandbox_subprocess_denied": lambda: os.system("true"),  # noqa: S605 - to be refused
    "sandbox_env_denied": _set_variable,
    "sandbox_introspection_denied": _garbage,
    "sandbox_guard_denied": _bypass,
}


@pytest.mark.parametrize("code", REFUSED)
def test_every_kind_of_refusal_is_written_down(state: Path, code: str) -> None:
    assert guarded(REFUSED[code]) == code
    found = [record for record in records(state) if record["event"] == "refusal"]
    assert [(record["code"], record["subject"], record["count"]) for record in found] == [
        (code, "module:notes", 1)
    ]
    done = osguard(state, "audit", "verify")
    assert (done.returncode, "sound" in done.stdout) == (0, True)


def test_a_program_that_may_not_be_run_is_written_down(state: Path) -> None:
    import subprocess  # noqa: PLC0415 - only here

    found = guarded(lambda: subprocess.call(["/bin/true"]), allow_subprocess=True)
    assert found == "sandbox_filesystem_execute_denied"
    written = {record["code"]: record for record in records(state)}
    assert written["sandbox_filesystem_execute_denied"]["operation"] == "execute"


def test_a_refusal_says_who_wanted_what_and_not_in_which_session(state: Path, secret: str) -> None:
    assert guarded(lambda: _read(secret)) == "sandbox_filesystem_denied"
    (record,) = records(state)
    assert record["resource_type"] == "filesystem"
    assert (record["operation"], record["target"]) == ("read", secret)
    assert record["reason"] == "no rule of module:notes covers it"
    assert len(record["session"]) == 8
    assert "s-1" not in json.dumps(record)


def test_what_is_allowed_is_not_written_down(state: Path, secret: str) -> None:
    assert guarded(lambda: _read(secret), allowed_paths=[secret]) == "secret"
    assert records(state) == []


def test_the_same_again_is_counted(state: Path, secret: str) -> None:
    guarded(lambda: [attempt(lambda: _read(secret)) for _ in range(50)])
    assert [(record["target"], record["count"]) for record in records(state)] == [
        (secret, 1),
        (secret, 49),
    ]


def test_what_was_counted_is_written_at_exit_too(state: Path, secret: str) -> None:
    script = (
        "import sys\n"
        "from democrai_osguard import process_guard_context, runtime\n"
        "from democrai_osguard.approvals import open_service\n"
        "runtime.use_approvals(open_service())\n"
        "with process_guard_context('notes', 'module'):\n"
        "    for _ in range(3):\n"
        "        try: open(sys.argv[1])\n"
        "        except PermissionError: pass\n"
    )
    import subprocess  # noqa: PLC0415 - only here

    subprocess.run([sys.executable, "-c", script, secret], check=True, timeout=60)
    assert [record["count"] for record in records(state)] == [1, 2]


class Shallow:
    """Keeps notes in a file, few calls away from the code that was refused."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def refused(self, refused: guard.Refused) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{refused.target}\n")

    def bypassed(self, bypassed: guard.Bypassed) -> None:
        raise NotImplementedError(bypassed)


def test_code_that_was_loaded_under_the_guard_is_written_down_too(
    secret: str, tmp_path: Path
) -> None:
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "osguard_test_plugin.py").write_text("import os\ndef go(path):\n    os.stat(path)\n")

    def check() -> object:
        guard.use_approvals(None, Shallow(tmp_path / "notes"))
        sys.path.insert(0, str(folder))
        with process_guard_context("notes", "module", allowed_paths=[str(folder)]):
            import osguard_test_plugin  # type: ignore[import-not-found] # noqa: PLC0415 - made above

            return attempt(lambda: osguard_test_plugin.go(secret))

    assert confined(check) == "sandbox_filesystem_denied"
    assert (tmp_path / "notes").read_text().splitlines()[-1] == secret


def test_a_flood_is_bounded_and_adds_up(state: Path) -> None:
    tries = 3000

    def act() -> object:
        for number in range(tries):
            attempt(lambda number=number: os.stat(f"/etc/osguard/{number}"))  # type: ignore[misc]
        return None

    guarded(act)
    written = records(state)
    assert sum(record["count"] for record in written) == tries
    assert written[-1]["event"] == "refusals_omitted"
    assert len(written) < tries / 2
    assert verify(str(state / "audit")).sound


def test_a_flood_leaves_room_again_after_a_while() -> None:
    meter = rates.RefusalMeter(0.0)
    kinds = [_refusal(number) for number in range(1000)]
    admitted = [meter.admits(kind, 0.0) for kind in kinds]
    assert sum(admitted) == rates.BURST
    assert meter.counted(rates.WINDOW_SECONDS / 2) == rates.Counted()
    counted = meter.counted(rates.WINDOW_SECONDS)
    assert counted == rates.Counted((), 1000 - int(rates.BURST))
    assert sum(meter.admits(kind, 1.0) for kind in kinds) == rates.PER_SECOND


def _refusal(number: int) -> rates.Refusal:
    return rates.Refusal("code", "", "module:notes", "filesystem", "read", f"/{number}", None)


def test_a_target_without_end_is_cut() -> None:
    long = rates.Refusal.of(
        code="c", reason="r" * 10**6, subject="module:notes", resource_type=None, operation=None,
        target="t" * 10**6, session=None,
    )  # fmt: skip
    assert len(json.dumps(long.fields())) < 3 * rates.TARGET_LIMIT


def test_a_refusal_stays_one_where_it_cannot_be_written_down(
    state: Path, secret: str, tmp_path: Path
) -> None:
    (state / "audit" / "audit.lock").mkdir(parents=True, mode=0o700)
    for folder in (state, state / "audit"):
        folder.chmod(0o700)

    def act() -> object:
        found = [attempt(lambda: _read(secret)) for _ in range(3)]
        return [*found, attempt(lambda: _read(str(tmp_path / "other")))]

    def check() -> object:
        service = open_service()
        runtime.use_approvals(service)
        with process_guard_context("notes", "module"):
            found = act()
        (state / "audit" / "audit.lock").rmdir()
        service.close()
        return found

    assert confined(check) == ["sandbox_filesystem_denied"] * 4
    assert [(each["event"], each["count"]) for each in records(state)] == [
        ("refusal", 2),  # the repetitions of the first
        ("refusals_omitted", 2),  # the two that could not be written
    ]
    assert verify(str(state / "audit")).sound


def _runtime_code(text: str) -> dict[str, Any]:
    """Return names made by code that counts as the runtime's own."""
    place = str(Path(democrai_osguard.__file__).parent / "osguard_test_code.py")
    made: dict[str, Any] = {}
    exec(compile(text, place, "exec"), made)  # noqa: S102 - what the test is about
    return made


BYPASSING = """
from democrai_osguard import process_guard_bypass_context
def reads(path):
    with process_guard_bypass_context():
        with open(path, encoding="utf-8") as file:
            return file.read()
"""


def test_a_bypass_is_written_down(state: Path, secret: str) -> None:
    reads = _runtime_code(BYPASSING)["reads"]
    assert guarded(lambda: reads(secret)) == "secret"
    (record,) = records(state)
    assert (record["event"], record["subject"]) == ("bypass", "module:notes")
    assert record["place"].endswith("osguard_test_code.py:4")
    assert verify(str(state / "audit")).sound


def test_a_bypass_that_cannot_be_written_down_does_not_happen(state: Path, secret: str) -> None:
    reads = _runtime_code(BYPASSING)["reads"]
    (state / "audit").mkdir(parents=True, mode=0o700)
    state.chmod(0o700)
    (state / "audit" / "audit.lock").mkdir()
    assert guarded(lambda: reads(secret)) == "audit_log_failed"
    (state / "audit" / "audit.lock").rmdir()
    assert guarded(lambda: reads(secret)) == "secret"


def test_guarded_code_cannot_stop_the_log(state: Path) -> None:
    assert guarded(lambda: guard.use_approvals(None)) == "sandbox_guard_denied"
    assert [record["target"] for record in records(state)] == ["use_approvals"]


def _wants(path: str) -> RequiresApproval:
    return RequiresApproval(read(path), "nothing allows it")


async def _session(_: AccessRequest) -> Answer:
    return Answer.SESSION


def test_what_a_permission_mode_does_is_written_down(state: Path) -> None:
    service = open_service()
    bypass = Permissions(Mode.BYPASS, _session, record=service.settled)
    asks = Permissions(Mode.SUPERVISED, _session, record=service.settled)
    assert isinstance(asyncio.run(bypass.settle(_wants("/srv/a"))), Allow)
    assert isinstance(asyncio.run(asks.settle(_wants("/srv/b"))), Allow)
    service.close()
    first, second = records(state)
    assert (first["event"], first["target"]) == ("bypass", "/srv/a")
    assert first["why"] == "the permission mode is bypass"
    assert (second["event"], second["answer"], second["target"]) == ("answer", "session", "/srv/b")
    assert verify(str(state / "audit")).sound


@pytest.mark.parametrize("mode", [Mode.BYPASS, Mode.SUPERVISED])
def test_a_mode_that_cannot_write_down_lets_nothing_through(state: Path, mode: Mode) -> None:
    service = open_service()
    (state / "audit" / "audit.lock").mkdir()
    permissions = Permissions(mode, _session, record=service.settled)
    with pytest.raises(RuntimeError, match="audit_log_failed"):
        asyncio.run(permissions.settle(_wants("/srv/a")))
    service.close()


def test_a_bypass_that_nobody_records_is_a_no() -> None:
    decision = asyncio.run(Permissions(Mode.BYPASS, _session).settle(_wants("/srv/a")))
    assert decision.code == "denied"


def test_a_fork_counts_for_itself(state: Path) -> None:
    service = open_service()
    for _ in range(3):
        service.check(read("/srv/a"))
    child = os.fork()
    if child == 0:
        try:
            service.check(read("/srv/a"))
            service.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    service.close()
    assert [record["count"] for record in records(state)] == [1, 1, 2]


def test_decisions_go_on_beside_a_flood(state: Path) -> None:
    service = open_service()
    for number in range(500):
        service.check(read(f"/srv/{number}"))
    assert decided(service)
    assert verify(str(state / "audit")).sound


def decided(service: ApprovalService) -> bool:
    done = service.approve_permanently(service.register(read("/srv/a")).id, ADA).applied
    service.close()
    return done
