"""A caller that leaves its groups: the broker, which is still in them, does nothing for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from kernel.conftest import in_a_fork, plan_for

from democrai_osguard_launcher import kernel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernel.conftest import Free

pytestmark = pytest.mark.needs("landlock", "seccomp", "root")

GROUP, SOMEBODY = 4242, 4243
# To change groups, to be confined, and to look into the caller: files of others are closed to it.
SETGID, SETPCAP, SYS_PTRACE = 6, 8, 19


def verdict(folder: Path, act: Callable[[], object], free: Free) -> str:
    """Return what came of the act, confined, for root without rights over the files of others."""
    said = folder.parent / "said"

    def run() -> None:
        os.setgroups([GROUP])
        plan = plan_for([("create", folder)])
        kernel.keep_capabilities((SETGID, SETPCAP, SYS_PTRACE))
        said.write_text(in_a_fork(act, plan))

    assert free(run) == "allowed"
    return said.read_text()


def test_nothing_is_made_for_who_has_left_the_group(tmp_path: Path, free: Free) -> None:
    folder = tmp_path / "of a group"
    folder.mkdir()
    folder.chmod(0o770)
    os.chown(folder, SOMEBODY, GROUP)
    tmp_path.chmod(0o755)

    def leave_and_make() -> None:
        os.setgroups([])
        os.mkdir(folder / "new")

    assert verdict(folder, leave_and_make, free) in {"EACCES", "EPERM"}
    assert os.listdir(folder) == []
    assert verdict(folder, lambda: os.mkdir(folder / "new"), free) == "allowed"
    assert os.listdir(folder) == ["new"]
