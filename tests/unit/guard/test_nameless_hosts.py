"""A host without a file (`python -c`) has the name that `exec` gives to what guarded code makes."""

from __future__ import annotations

import subprocess
import sys

HOST = """
import threading
from democrai_osguard import current_guard, process_guard_context

made = {}

def work():
    with process_guard_context("notes", "module"):
        exec("def left(): open('/etc/hostname').close()", made)

def free():
    open("/etc/hostname").close()
    return current_guard()

work()
print("host", free(), current_guard())
try:
    made["left"]()
    print("left: free")
except PermissionError as error:
    print("left:", error.code)
def elsewhere():
    print("thread", free())
thread = threading.Thread(target=elsewhere)
thread.start()
thread.join()
work()
print("again", free())
"""
EXPECTED = """\
host None None
left: sandbox_filesystem_denied
thread None
again None
"""


def test_the_host_is_free_again_and_what_a_guard_made_is_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOST], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == (EXPECTED, "")
