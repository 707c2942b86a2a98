"""What tests of `sdk.access` share: code of an extension that asks, and one that reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sdk.host import Host

    from democrai_osguard import sdk

ASK = """
from democrai_osguard import sdk

def main(resource_type, operation, target, **more):
    return sdk.access.check_external_access(
        resource_type=resource_type, operation=operation, target=target, **more)
"""
READ = "def main(path):\n    with open(path) as file: return file.read()"


def asked(host: Host, session_key: str | None = "s-1") -> sdk.access.ExternalAccess:
    main = host.load(ASK)
    with host.guard(session_key=session_key):
        return main("filesystem", "read", host.outside / "file")  # type: ignore[no-any-return]
