"""Which keys a manifest has, per kind of subject: the one table that parser and schema share."""

from __future__ import annotations

from democrai_osguard.access import SubjectType

DESCRIPTIVE = ("$schema", "name", "version", "description")  # text, for people; never policy
ACCESS_KEYS = ("resource_type", "operation", "target")
POLICY_KEYS = ("access", "allowed_imports")
PHASES = ("runtime", "install")
CONFIG_URLS = "allowed_config_urls"

# Subjects whose policy stands at the top of the manifest, and those that have phases.
FLAT = (
    SubjectType.MODULE,
    SubjectType.TASK,
    SubjectType.TOOL,
    SubjectType.AGENT,
    SubjectType.PIPELINE,
    SubjectType.CORE,
)
PHASED = (SubjectType.ENGINE, SubjectType.EXTRACTOR)

# The end is a look-ahead because '$' also matches before a final newline in some dialects.
IMPORT_ROOT = r"^[A-Za-z_][A-Za-z0-9_]*(?![\s\S])"
SENSITIVE_IMPORTS = ("ctypes", "_ctypes", "cffi", "_cffi_backend")


def top_keys(kind: SubjectType) -> tuple[str, ...]:
    """Return the keys at the top of a manifest of this kind."""
    if kind in FLAT:
        return (*DESCRIPTIVE, *POLICY_KEYS)
    config = (CONFIG_URLS,) if kind is SubjectType.ENGINE else ()
    return (*DESCRIPTIVE, *PHASES, *config)


def phase_keys(kind: SubjectType) -> tuple[str, ...]:
    """Return the keys inside a phase of this kind."""
    config = (CONFIG_URLS,) if kind is SubjectType.ENGINE else ()
    return (*POLICY_KEYS, *config)
