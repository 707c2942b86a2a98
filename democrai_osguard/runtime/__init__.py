"""The guard of each surface of the application, made from a manifest and a request's identity."""

from democrai_osguard.runtime.application import confine_application
from democrai_osguard.runtime.approvals_link import ask_through, use_approvals
from democrai_osguard.runtime.contexts import (
    agent_context,
    engine_context,
    extractor_context,
    mcp_context,
    media_context,
    module_context,
    pipeline_context,
    task_context,
    tool_context,
)
from democrai_osguard.runtime.mcp import contact_mcp
from democrai_osguard.runtime.resuming import Resumer

__all__ = [
    "Resumer",
    "agent_context",
    "ask_through",
    "confine_application",
    "contact_mcp",
    "engine_context",
    "extractor_context",
    "mcp_context",
    "media_context",
    "module_context",
    "pipeline_context",
    "task_context",
    "tool_context",
    "use_approvals",
]

(lambda: None).__code__  # noqa: B018 - what was just loaded is watched over; see `guard.sealed.hook`
