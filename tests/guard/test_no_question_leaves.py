"""A look-up is a message: of a name that no rule covers, nothing reaches a name server.

Everything happens in a network namespace of its own, which has nothing but a loopback.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from guard import name_server

pytestmark = pytest.mark.needs("root")
_ALONE = """
ip link set lo up
mount --bind "$1/resolv.conf" /etc/resolv.conf
mount --bind "$1/nsswitch.conf" /etc/nsswitch.conf
test ! -d /run/nscd || mount -t tmpfs tmpfs /run/nscd
exec "$2" "$3"
"""


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("names")
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")
    (folder / "nsswitch.conf").write_text("hosts: files dns\n")
    words = ["sh", "-ec", _ALONE, "sh", str(folder), sys.executable, name_server.__file__]
    command = ["unshare", "--mount", "--net", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", name_server.ACTS)
def test_a_name_outside_the_rules_is_refused_before_anybody_is_asked(
    name: str, findings: dict[str, Any]
) -> None:
    free, guarded = findings["acts"][name]
    assert free[0] > 0, free  # the control: without a guard the question arrives
    assert guarded == [0, "sandbox_network_denied"]


def test_a_name_that_a_rule_covers_is_asked_for(findings: dict[str, Any]) -> None:
    asked, words = findings["allowed"]
    assert (asked > 0, words) == (True, "done")
