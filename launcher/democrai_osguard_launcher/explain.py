"""The plan in words, for `--explain`. The JSON form is stable: fields are added, never changed."""

from __future__ import annotations

from .landlock import right_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .plan import Plan

FORMAT = 1


def as_document(plan: Plan) -> dict[str, object]:
    """Return the plan as plain values."""
    return {
        "format": FORMAT,
        "level": plan.level,
        "landlock": {
            "abi": plan.abi,
            "paths": [
                {"path": path, "rights": list(right_names(rights)), "why": why}
                for path, rights, why in plan.paths
            ],
            "tcp_and_udp_ports": sorted({port.port for port in plan.ports}),
        },
        "seccomp": {"available": plan.seccomp, "sockets": list(plan.sockets)},
        "broker": list(plan.brokered),
        "egress": [{"host": host, "port": port} for host, port in plan.endpoints],
        "rules": [
            {
                "resource_type": rule.resource_type,
                "operation": rule.operation,
                "target": rule.target,
                "label": label,
                "held_by": held_by,
            }
            for rule, label, held_by in plan.rules
        ],
        "missing": list(plan.missing),
        "notes": list(plan.notes),
    }


def as_text(plan: Plan) -> str:
    """Return the plan as lines for a person."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield f"enforcement: {plan.level}"
    yield f"Landlock: ABI {plan.abi}" if plan.abi else "Landlock: none"
    sockets = ", ".join(plan.sockets) or "none but socketpair"
    yield f"seccomp: sockets: {sockets}" if plan.seccomp else "seccomp: none"
    yield f"broker: {', '.join(plan.brokered) or 'not needed'}"
    for rule, label, held_by in plan.rules:
        words = f"{rule.resource_type} {rule.operation} {rule.target}"
        yield f"  {words}: {label} ({held_by})"
    for heading, lines in (("missing", plan.missing), ("note", plan.notes)):
        yield from (f"{heading}: {line}" for line in lines)
