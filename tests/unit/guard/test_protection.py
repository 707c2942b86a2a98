"""What no rule opens, and what guarded code cannot leave behind."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard.guard import contexts, process_guard_context, protect
from democrai_osguard.guard.sealed.imports import NEVER

if TYPE_CHECKING:
    from pathlib import Path


def _read(path: object) -> str:
    try:
        with open(str(path), encoding="utf-8") as file:
            return file.read()
    except PermissionError as error:
        return str(getattr(error, "code", error))


def test_the_store_and_its_key_are_closed_to_every_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMOCRAI_STATE_DIR", str(tmp_path))
    for name in ("approvals", "keys", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "elsewhere").write_text("store")

    def check() -> object:
        protect(tmp_path / "elsewhere")
        with process_guard_context("m", "module", allowed_paths=["/"]):
            found = [_read(tmp_path / name / "file") for name in ("approvals", "keys", "own")]
            return [*found, _read(tmp_path / "elsewhere")]

    denied = "sandbox_filesystem_denied"
    assert confined(check) == [denied, denied, "own", denied]


def _move(source: object, destination: object) -> str:
    try:
        os.rename(str(source), str(destination))
    except PermissionError as error:
        return str(getattr(error, "code", error))
    return "moved"


@pytest.mark.parametrize("on_the_way", ["app", "app/state"])
def test_a_folder_on_the_way_to_the_store_is_not_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_the_way: str
) -> None:
    """Else the store would lie where nothing keeps it, and could be written."""
    for name in ("app/state/approvals", "app/state/other", "app/beside"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("DEMOCRAI_STATE_DIR", str(tmp_path / "app/state"))

    def check() -> object:
        with process_guard_context("m", "module", allowed_paths=[tmp_path]):
            found = [_move(tmp_path / on_the_way, tmp_path / "moved")]
            found += [_move(tmp_path / f"app/{name}", tmp_path / f"app/{name}-2")
                      for name in ("state/other", "beside")]  # fmt: skip
        return [*found, _move(tmp_path / on_the_way, tmp_path / "moved")]

    assert confined(check) == ["sandbox_filesystem_denied", "moved", "moved", "moved"]


def test_what_guarded_code_changed_in_the_guard_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    (tmp_path / "file").write_text("x")

    def check() -> object:
        with process_guard_context("m", "module"):
            process_guard_context.__enter__ = lambda _self: None  # type: ignore[method-assign]
            contexts.install = lambda: None  # type: ignore[attr-defined]
            contexts.doors["enter"] = lambda *_args: None  # type: ignore[attr-defined]
        with process_guard_context("m", "module"):
            return _read(tmp_path / "file")

    assert confined(check) == "sandbox_filesystem_denied"


@pytest.mark.parametrize("how", ["reloaded", "loaded anew"])
def test_a_second_copy_of_the_guard_s_own_modules_is_taken_away(how: str) -> None:
    """Who imports them afterwards gets the doors that act, not an empty table of new ones."""

    def check() -> object:

        name = "democrai_osguard.guard.installation"
        with process_guard_context("m", "module"):
            if how == "reloaded":
                importlib.reload(sys.modules[name])
            else:
                del sys.modules[name]
                importlib.import_module(name)
            inside = sys.modules[name].doors is contexts.doors  # type: ignore[attr-defined]
        return [inside, importlib.import_module(name).doors is contexts.doors]  # type: ignore[attr-defined]

    assert confined(check) == [False, True]


@pytest.mark.parametrize("root", sorted(NEVER))
def test_a_module_that_reaches_past_the_guard_cannot_be_imported(root: str) -> None:
    def check() -> object:
        with process_guard_context("m", "module"):
            try:
                __import__(root)
            except PermissionError as error:
                return str(error)
        return "imported"

    assert confined(check) == f"sandbox_module_denied:{root}"


def test_tcl_is_closed_also_where_the_application_has_loaded_it(tmp_path: Path) -> None:
    pytest.importorskip("_tkinter")
    secret = tmp_path / "secret"
    secret.write_text("secret")

    def ask() -> object:
        import tkinter as tk  # noqa: PLC0415 - in the child only

        try:
            return tk.Tcl().eval(f"read [open {secret}]")
        except (PermissionError, ImportError) as error:
            return str(error)

    def check() -> object:
        before = ask()
        with process_guard_context("m", "module"):
            return [before, ask()]

    assert confined(check) == ["secret", "sandbox_module_denied:_tkinter"]


def _offered(module: str, *functions: str) -> list[str]:
    known = importlib.import_module(module)
    return [f"{module}.{function}" for function in functions if hasattr(known, function)]


@pytest.mark.parametrize(
    "name",
    [
        *_offered("os", "chroot", "setns", "unshare"),
        *_offered("sys", "activate_stack_trampoline"),
    ],
)
def test_what_would_change_the_meaning_of_paths_is_refused(name: str) -> None:
    module, _, function = name.partition(".")

    def check() -> object:
        with process_guard_context("m", "module", allowed_paths=["/"]):
            try:
                getattr(importlib.import_module(module), function)("/")
            except PermissionError as error:
                return str(error)
        return "done"

    assert confined(check) == f"sandbox_introspection_denied:{name}"


def test_what_runs_at_a_fork_carries_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions of libraries too, which no mark on their file tells apart."""
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    (tmp_path / "secret").mkdir()

    def check() -> object:
        copy = functools.partial(shutil.copytree, tmp_path / "secret")
        os.register_at_fork(before=functools.partial(copy, tmp_path / "by the application"))
        with process_guard_context("m", "module", allowed_paths=[tmp_path / "own"]):
            os.register_at_fork(before=functools.partial(copy, tmp_path / "own"))
        with contextlib.redirect_stderr(io.StringIO()):
            pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return sorted(os.listdir(tmp_path))

    assert confined(check) == ["by the application", "secret", "temp"]


def test_importing_a_module_of_the_runtime_under_a_guard_works() -> None:
    def check() -> object:

        with process_guard_context("m", "module"):
            sys.modules.pop("democrai_osguard.policy.decision", None)
            return importlib.import_module("democrai_osguard.policy.decision").__name__

    assert confined(check) == "democrai_osguard.policy.decision"


def test_the_store_is_closed_also_where_it_moved_after_the_first_guard(tmp_path: Path) -> None:
    for name in ("approvals", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)

    def check() -> object:
        with process_guard_context("m", "module", allowed_paths=["/"]):
            before = _read(tmp_path / "approvals/file")
        os.environ["DEMOCRAI_STATE_DIR"] = str(tmp_path)
        with process_guard_context("m", "module", allowed_paths=["/"]):
            return [before, *(_read(tmp_path / name / "file") for name in ("approvals", "own"))]

    assert confined(check) == ["approvals", "sandbox_filesystem_denied", "own"]
