"""Running a check in a fork, which tells what it found: a guard cannot be taken out again."""

from __future__ import annotations

import json
import os
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def confined(check: Callable[[], object]) -> Any:  # noqa: ANN401 - what the check returned, as JSON
    """Return what the check returns in a fork; fail with its traceback where it raises."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        message: dict[str, object] = {"error": "the child fell silent"}
        try:
            message = {"found": check()}
        except BaseException:  # noqa: BLE001 - the parent fails with it
            message = {"error": traceback.format_exc()}
        finally:
            os.write(writer, json.dumps(message, default=str).encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = json.loads(pipe.read() or b'{"error": "the child fell silent"}')
    os.waitpid(pid, 0)
    assert "error" not in answer, answer["error"]
    return answer["found"]
