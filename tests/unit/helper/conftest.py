"""What the units' tests need besides the standard features of a host."""

from __future__ import annotations

import shutil

from host_features import PROBES

PROBES.setdefault("systemd-analyze", lambda: shutil.which("systemd-analyze") is not None)
