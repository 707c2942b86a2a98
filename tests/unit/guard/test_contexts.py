"""The guard as a context: who acts, nesting, identity, and what passes when none is active.

Each check runs in a fork, because a guard cannot be uninstalled.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard.access import Rule
from democrai_osguard.guard import current_guard, network_policy_context, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def _rule(operation: str, path: object) -> Rule:
    return Rule("filesystem", operation, str(path))  # type: ignore[arg-type] # Rule checks


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return two folders with a file each, neither of them the temporary folder."""
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    return str(tmp_path / "a"), str(tmp_path / "b")


def _read(folder: str) -> str:
    with open(os.path.join(folder, "file"), encoding="utf-8") as file:
        return file.read()


def _attempt(folder: str) -> str:
    try:
        return _read(folder)
    except PermissionError as error:
        return getattr(error, "code", "PermissionError")


def test_a_guard_is_known_inside_and_gone_outside(folders: tuple[str, str]) -> None:
    def check() -> object:
        with process_guard_context("m", "module", [_rule("read", folders[0])], user_id="u") as info:
            inside = current_guard()
        assert info == inside is not None
        return [str(inside.subject), inside.user_id, current_guard(), len(inside.access)]

    assert confined(check) == ["module:m", "u", None, 1]


def test_only_what_is_granted_is_read(folders: tuple[str, str]) -> None:
    def check() -> object:
        with process_guard_context("m", "module", allowed_paths=[folders[0]]):
            inside = [_attempt(folder) for folder in folders]
        return inside + [_attempt(folder) for folder in folders]

    assert confined(check) == ["a", "sandbox_filesystem_denied", "a", "b"]


def test_subjects_with_a_manifest_merge(folders: tuple[str, str]) -> None:
    def check() -> object:
        with (
            process_guard_context("m", "module", allowed_paths=[folders[0]]),
            process_guard_context("e", "engine", allowed_paths=[folders[1]]) as info,
        ):
            assert info is not None
            return [*map(_attempt, folders), *map(str, info.subject_chain)]

    assert confined(check) == ["a", "b", "module:m", "engine:e"]


def test_an_asset_that_declares_narrows_and_a_silent_one_does_not(folders: tuple[str, str]) -> None:
    def check() -> object:
        with process_guard_context("m", "module", allowed_paths=folders):
            with process_guard_context("t", "tool", [_rule("read", folders[0])]):
                narrowed = [_attempt(folder) for folder in folders]
            with process_guard_context("t", "tool"):
                return narrowed + [_attempt(folder) for folder in folders]

    assert confined(check) == ["a", "sandbox_filesystem_denied", "a", "b"]


def test_an_mcp_server_starts_fresh(folders: tuple[str, str]) -> None:
    def check() -> object:
        with (
            process_guard_context("m", "module", allowed_paths=folders),
            process_guard_context("s", "mcp", include_runtime_paths=False),
        ):
            return [_attempt(folder) for folder in folders]

    assert confined(check) == ["sandbox_filesystem_denied"] * 2


def test_a_nested_subject_keeps_the_identity_of_the_request() -> None:
    def check() -> object:
        with (
            process_guard_context("m", "module", user_id="u", session_key="s"),
            process_guard_context("t", "tool") as info,
        ):
            assert info is not None
            return [info.user_id, info.organization_id, info.session_key]

    assert confined(check) == ["u", None, "s"]


def test_a_network_policy_leaves_files_alone(folders: tuple[str, str]) -> None:
    def check() -> object:
        import socket  # noqa: PLC0415 - in the child only

        with network_policy_context("m", "module"):
            try:
                socket.create_connection(("127.0.0.1", 9), 1)
            except PermissionError as error:
                return [_attempt(folders[1]), str(error)]
        return None

    assert confined(check) == ["b", "sandbox_network_denied:m:connect:localhost:9"]


@pytest.mark.parametrize("operation", ["read", "create", "modify", "delete"])
def test_no_operation_implies_another(folders: tuple[str, str], operation: str) -> None:
    file = os.path.join(folders[0], "file")
    acts: dict[str, Callable[[], object]] = {
        "read": lambda: open(file, encoding="utf-8").close(),
        "create": lambda: os.close(os.open(file + "2", os.O_CREAT | os.O_WRONLY)),
        "modify": lambda: os.utime(file),
        "delete": lambda: os.remove(file),
    }

    def check() -> object:
        allowed = []
        with process_guard_context("m", "module", [_rule(operation, folders[0])]):
            for name, act in acts.items():
                try:
                    act()
                except PermissionError:
                    continue
                allowed.append(name)
        return allowed

    assert confined(check) == [operation]


def test_a_refusal_says_everything(folders: tuple[str, str]) -> None:
    def check() -> object:
        with process_guard_context("m", "module"):
            try:
                _read(folders[1])
            except PermissionError as error:
                fields = ("code", "subject", "operation", "target", "chain", "hint")
                return [str(error), *(getattr(error, name) for name in fields)]
        return None

    path = os.path.join(folders[1], "file")
    text = f"sandbox_filesystem_denied:m:{path} (subject=module:m; operation=read; chain=module:m)"
    found = confined(check)
    assert found[:5] == [text, "sandbox_filesystem_denied", "m", "read", path]
    assert found[5] == ["module:m"]
    assert '"operation": "read"' in found[6]


def test_only_the_frame_that_opened_a_guard_closes_it(folders: tuple[str, str]) -> None:
    def check() -> object:
        guard = process_guard_context("m", "module")

        def escape() -> str:
            try:
                guard.__exit__(None, None, None)
            except PermissionError as error:
                return str(error)
            return "left"

        with guard:
            return [escape(), _attempt(folders[0])]

    denied = "sandbox_guard_denied:leaving a guard from inside"
    assert confined(check) == [denied, "sandbox_filesystem_denied"]


def test_a_guard_holds_across_await_and_leaves_other_tasks_alone(folders: tuple[str, str]) -> None:
    def check() -> object:
        import asyncio  # noqa: PLC0415 - in the child only

        async def guarded() -> str:
            with process_guard_context("m", "module"):
                await asyncio.sleep(0.01)
                inner = asyncio.create_task(asyncio.to_thread(_attempt, folders[0]))
                return f"{_attempt(folders[0])} {await inner}"

        async def free() -> str:
            await asyncio.sleep(0.005)
            return _attempt(folders[0])

        async def main() -> list[str]:
            return list(await asyncio.gather(guarded(), free()))

        return asyncio.run(main())

    denied = "sandbox_filesystem_denied"
    assert confined(check) == [f"{denied} {denied}", "a"]


def test_a_pool_serves_guarded_and_free_work_side_by_side(folders: tuple[str, str]) -> None:
    def check() -> object:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - in the child only

        with ThreadPoolExecutor(1) as pool:
            with process_guard_context("m", "module"):
                guarded = pool.submit(_attempt, folders[0])
            free = pool.submit(_attempt, folders[0])
            return [guarded.result(), free.result()]

    assert confined(check) == ["sandbox_filesystem_denied", "a"]


def test_a_guard_may_be_opened_for_somebody_else(folders: tuple[str, str]) -> None:
    def check() -> object:
        @contextlib.contextmanager
        def module_context() -> Iterator[None]:
            with process_guard_context("m", "module"):
                yield

        found = []
        with module_context():
            found.append(contextvars.Context().run(_attempt, folders[0]))
        with contextlib.ExitStack() as stack:
            stack.enter_context(module_context())
            stack.enter_context(process_guard_context("t", "tool"))
            found.append(_attempt(folders[0]))
        return [*found, _attempt(folders[0])]

    denied = "sandbox_filesystem_denied"
    assert confined(check) == [denied, denied, "a"]


def test_what_is_opened_in_set_up_is_closed_in_tear_down(folders: tuple[str, str]) -> None:
    def check() -> object:
        guard = process_guard_context("m", "module")

        def set_up() -> None:
            guard.__enter__()

        def tear_down() -> None:
            guard.__exit__(None, None, None)

        set_up()
        inside = _attempt(folders[0])
        tear_down()
        return [inside, _attempt(folders[0])]

    assert confined(check) == ["sandbox_filesystem_denied", "a"]


def test_a_thread_outlives_its_guard_and_stays_guarded(folders: tuple[str, str]) -> None:
    def check() -> object:
        found: list[str] = []
        left = threading.Event()

        def work() -> None:
            left.wait(5)
            found.append(contextvars.Context().run(_attempt, folders[0]))

        with process_guard_context("m", "module"):
            thread = threading.Thread(target=work)
            thread.start()
        left.set()
        thread.join()
        return [*found, _attempt(folders[0])]

    assert confined(check) == ["sandbox_filesystem_denied", "a"]


def test_importing_the_package_changes_nothing() -> None:
    script = (
        "import os, sys, democrai_osguard.guard\n"
        "print(type(open).__name__, type(os.stat).__name__,"
        " 'democrai_osguard.guard.assembly' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["builtin_function_or_method"] * 2 + ["False"]
