"""Keys and the vault: private, rotated, handed in, and noticing every changed byte."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from democrai_osguard.approvals import Resume, ResumeFailed, ResumeTampered
from democrai_osguard.approvals.keys import CREDENTIAL, KeyFile
from democrai_osguard.approvals.vault import Vault
from democrai_osguard.audit.private_files import UnsafeFile

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2-in-the-context"  # noqa: S105 - what must never show
RESUME = Resume("system.resume_import", {"password": SECRET})


@pytest.mark.parametrize("place", [0, 3, 12, 30, -1])
def test_a_changed_byte_is_noticed(tmp_path: Path, place: int) -> None:
    vault = Vault(KeyFile(f"{tmp_path}/keys/k"))
    sealed = bytearray(vault.seal(RESUME.context, b"me"))
    assert vault.open(bytes(sealed), b"me") == RESUME.context
    sealed[place] ^= 1
    with pytest.raises(ResumeFailed) as caught:
        vault.open(bytes(sealed), b"me")
    assert SECRET not in str(caught.value)
    with pytest.raises(ResumeTampered):
        vault.open(b"", b"me")


def test_a_key_that_is_gone_is_said(tmp_path: Path) -> None:
    vault = Vault(KeyFile(f"{tmp_path}/keys/k"))
    sealed = vault.seal(RESUME.context, b"me")
    vault.keys.rotate()
    assert vault.open(sealed, b"me") == RESUME.context
    vault.keys.drop_old()
    with pytest.raises(ResumeFailed, match="gone"):
        vault.open(sealed, b"me")


def test_the_key_file_is_private(tmp_path: Path) -> None:
    keys = KeyFile(f"{tmp_path}/keys/k")
    ring = keys.load()
    path = tmp_path / "keys" / "k"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ring.newest.secret.hex() not in repr(ring)
    assert keys.load() == ring
    path.chmod(0o640)
    with pytest.raises(ResumeFailed, match="read by others"):
        keys.load()
    path.chmod(0o666)
    with pytest.raises(UnsafeFile):
        keys.load()


@pytest.mark.parametrize("text", ["", "zz zz\n", "0011 AAAA\n", "0011223344556677\n"])
def test_a_broken_key_file_is_said(tmp_path: Path, text: str) -> None:
    keys = KeyFile(f"{tmp_path}/keys/k")
    keys.load()
    (tmp_path / "keys" / "k").write_text(text)
    with pytest.raises(ResumeFailed):
        keys.load()


def test_systemd_may_hand_the_keys_in(tmp_path: Path) -> None:
    own = KeyFile(f"{tmp_path}/keys/k")
    ring = own.load()
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / CREDENTIAL).write_bytes((tmp_path / "keys" / "k").read_bytes())
    handed = KeyFile(f"{tmp_path}/nowhere/k", credentials=f"{tmp_path}/credentials")
    assert handed.load() == ring
    with pytest.raises(ResumeFailed, match="systemd"):
        handed.rotate()
    assert not (tmp_path / "nowhere").exists()
