"""Every test here runs in a fork of its own: a guard that is installed cannot be taken out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from guard.confined import confined
from sdk.host import Host

if TYPE_CHECKING:
    from pathlib import Path


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001 - pytest's own way to call a test
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    confined(lambda: pyfuncitem.obj(**arguments))
    return True


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    for name in ("STATE", "TEMP", "DATA", "CACHE"):
        monkeypatch.setenv(f"DEMOCRAI_{name}_DIR", str(tmp_path / name.lower()))
    (tmp_path / "temp").mkdir()
    return Host(tmp_path)
