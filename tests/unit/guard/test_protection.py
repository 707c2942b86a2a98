"""What no rule opens, and what guarded code cannot leave behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.confined import confined

from democrai_osguard.guard import contexts, process_guard_context, protect

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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


def test_importing_a_module_of_the_runtime_under_a_guard_works() -> None:
    def check() -> object:
        import importlib  # noqa: PLC0415 - in the child only
        import sys  # noqa: PLC0415 - as above

        with process_guard_context("m", "module"):
            sys.modules.pop("democrai_osguard.policy.decision", None)
            return importlib.import_module("democrai_osguard.policy.decision").__name__

    assert confined(check) == "democrai_osguard.policy.decision"
