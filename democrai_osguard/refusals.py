"""What the guard refuses, as exceptions: each says who, what, where, and what to do about it.

A refusal is a PermissionError. A failure to find out is a RuntimeError and keeps access closed.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar

from democrai_osguard.errors import OsGuardError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Refusal(OsGuardError, PermissionError):
    """An act that the active guard does not allow."""

    code: ClassVar[str] = "sandbox_denied"

    def __init__(  # noqa: PLR0913 - the fields of the contract
        self,
        text: str,
        *,
        subject: str | None = None,
        operation: str | None = None,
        target: str | None = None,
        chain: Sequence[str] = (),
        hint: str = "",
    ) -> None:
        super().__init__(text)
        self.text = text
        # Set apart from the arguments, so that the message stays exactly the text.
        self.errno = errno.EACCES
        self.subject = subject
        self.operation = operation
        self.target = target
        self.chain = tuple(chain)
        self.hint = hint

    def __str__(self) -> str:
        return self.text  # libraries set `filename`, which would take the place of the text


class FilesystemDenied(Refusal):
    """A path outside the rules."""

    code = "sandbox_filesystem_denied"


class ExecuteDenied(Refusal):
    """A program that the subject may not execute."""

    code = "sandbox_filesystem_execute_denied"


class DescriptorDenied(Refusal):
    """A call relative to a folder's descriptor, outside an install phase."""

    code = "sandbox_filesystem_fd_denied"


class ModuleDenied(Refusal):
    """An import of something that reaches below Python."""

    code = "sandbox_module_denied"


class ModuleUnavailable(OsGuardError, ImportError):
    """The same refusal as a library's optional import meets it: the module is not there."""

    code = "sandbox_module_denied"


class ModuleHidden(OsGuardError, ModuleNotFoundError):
    """An installed module that a library looks for and may not be read: here it is not there."""

    code = "sandbox_filesystem_denied"


class SubprocessDenied(Refusal):
    """A process that may not be started."""

    code = "sandbox_subprocess_denied"


class EnvironmentDenied(Refusal):
    """A change of a variable that the runtime owns."""

    code = "sandbox_env_denied"


class NetworkDenied(Refusal):
    """A network target outside the rules."""

    code = "sandbox_network_denied"


class IntrospectionDenied(Refusal):
    """A look into the interpreter that would lead to the guard's own state."""

    code = "sandbox_introspection_denied"


class GuardDenied(Refusal):
    """An attempt to bypass, widen or leave the guard from inside."""

    code = "sandbox_guard_denied"


class ApprovalCheckFailed(OsGuardError, RuntimeError):
    """The approval backend could not answer, so access stays closed. Not a denial."""

    code = "sandbox_external_access_check_failed"


REFUSALS: dict[str, type[Refusal]] = {
    kind.code: kind
    for kind in (
        FilesystemDenied,
        ExecuteDenied,
        DescriptorDenied,
        ModuleDenied,
        SubprocessDenied,
        EnvironmentDenied,
        NetworkDenied,
        IntrospectionDenied,
        GuardDenied,
    )
}
