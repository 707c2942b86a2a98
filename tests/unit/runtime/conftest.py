"""Every test here runs in a fork of its own: a guard that is installed cannot be taken out."""

from __future__ import annotations

import pytest
from guard.confined import confined


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001 - pytest's own way to call a test
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    confined(lambda: pyfuncitem.obj(**arguments))
    return True
