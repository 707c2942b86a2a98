"""A store, key or log that the application keeps elsewhere is closed to guarded code, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from democrai_osguard import process_guard_context, runtime, sdk
from democrai_osguard.approvals import ApprovalService, Operator, open_store, run_resumes
from democrai_osguard.approvals.keys import CREDENTIAL, KeyFile
from democrai_osguard.approvals.vault import Vault
from democrai_osguard.audit import AuditLog

if TYPE_CHECKING:
    from pathlib import Path

ANN = Operator("ann", super_role=True)


def _opened(path: Path, mode: str) -> str:
    try:
        with open(path, mode):
            return "opened"
    except PermissionError as error:
        return str(getattr(error, "code", error))


@pytest.mark.parametrize("mode", ["rb", "r+b"])
def test_no_rule_opens_the_application_s_own_store_key_and_log(tmp_path: Path, mode: str) -> None:
    service = ApprovalService(
        open_store(f"sqlite://{tmp_path}/own/store.db"),
        vault=Vault(KeyFile(f"{tmp_path}/own/resume.keys")),
        audit=AuditLog(f"{tmp_path}/own/log"),
    )
    runtime.use_approvals(service)
    with process_guard_context("m", "module"):
        asked = sdk.access.require_external_access(
            resource_type="filesystem", operation="read", target="/srv/x",
            resume_action="again", resume_context={},
        )  # fmt: skip
    service.deny(asked.request_id or "", ANN)
    (tmp_path / "own" / "other").write_text("x")
    files = ["store.db", "store.db-wal", "resume.keys", "log/audit.jsonl", "other"]
    assert [_opened(tmp_path / "own" / name, mode) for name in files] == ["opened"] * 5
    with process_guard_context("m", "module", allowed_paths=["/"]):
        found = [_opened(tmp_path / "own" / name, mode) for name in files]
    assert found == ["sandbox_filesystem_denied"] * 4 + ["opened"]


def test_keys_that_systemd_hands_in_are_closed_as_well(tmp_path: Path) -> None:
    keys = KeyFile(f"{tmp_path}/resume.keys")
    keys.load()
    handed_in = tmp_path / "credentials" / CREDENTIAL
    handed_in.parent.mkdir()
    handed_in.write_bytes((tmp_path / "resume.keys").read_bytes())
    vault = Vault(KeyFile(f"{tmp_path}/unused", credentials=str(handed_in.parent)))
    store = open_store(f"sqlite://{tmp_path}/own/store.db")
    runtime.use_approvals(ApprovalService(store, vault=vault))
    assert _opened(handed_in, "rb") == "opened"
    with process_guard_context("m", "module", allowed_paths=["/"]):
        assert _opened(handed_in, "rb") == "sandbox_filesystem_denied"


def test_a_service_of_a_store_alone_seals_with_the_key_of_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMOCRAI_STATE_DIR", str(tmp_path / "state"))
    service = ApprovalService(open_store(f"sqlite://{tmp_path}/own/store.db"))
    assert not (tmp_path / "state").exists()  # made when it is needed
    runtime.use_approvals(service)
    with process_guard_context("m", "module"):
        asked = sdk.access.require_external_access(
            resource_type="filesystem", operation="read", target="/srv/x",
            resume_action="again", resume_context={"row": 3},
        )  # fmt: skip
    service.approve_permanently(asked.request_id or "", ANN)
    rows: list[object] = []
    run_resumes(service, {"again": lambda call: rows.append(call.context["row"])})
    assert rows == [3]
    assert (tmp_path / "state/keys/resume.keys").stat().st_mode & 0o777 == 0o600
