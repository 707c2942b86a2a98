"""What a service keeps in memory of a SQLite store that grows."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ROOM = 4096  # KiB: the cache of one connection, and what an interpreter still learns
_DECIDES = """
import sys
from pathlib import Path
from democrai_osguard.access import Identity
from democrai_osguard.approvals import ApprovalService, Operator, open_store

service = ApprovalService(open_store(f"sqlite://{sys.argv[1]}"))
ada = Operator("ada", super_role=True)

def decide(number):
    target = f"/srv/{number}/" + 3500 * "x"
    service.record(
        Identity("module", "notes", "filesystem", "read", target, "permanent", None), ada
    )

def memory():
    return int(Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()[0])

for number in range(50):
    decide(number)
before = memory()
for number in range(50, 1250):
    decide(number)
print(memory() - before)
service.close()
"""


def test_a_service_that_decides_holds_little_of_what_it_wrote(tmp_path: Path) -> None:
    store = tmp_path / "folder" / "store"
    command = [sys.executable, "-c", _DECIDES, str(store)]  # a heap that no other test has used
    grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert store.stat().st_size > 2 * _ROOM * 1024
    assert int(grown) < _ROOM
