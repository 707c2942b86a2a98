"""The audit log: what was decided, refused and let through, in a chain that shows tampering."""

from democrai_osguard.audit.log import AuditLog
from democrai_osguard.audit.verify import Flaw, Report, verify

__all__ = ["AuditLog", "Flaw", "Report", "verify"]
