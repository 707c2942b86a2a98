"""The plan in words, for `--explain`. The JSON form is stable: fields are added, never changed."""

from __future__ import annotations

from .errors import one_line
from .landlock import EXECUTE, WRITE_FILE, right_names
from .plan import DECLARED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .plan import Inheritance, Plan

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
        "loader": _loader(plan),
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
        **_inherited(plan.inheritance),
    }


def _inherited(inheritance: Inheritance) -> dict[str, object]:
    kept, closed, passed, asked_for, withheld, own, limits = inheritance
    return {
        "descriptors": {"kept": list(kept), "closed": list(closed)},
        "environment": {
            "passed": list(passed),
            "asked_for": list(asked_for),
            "withheld": list(withheld),
            "set": list(own),
        },
        "limits": dict(limits),
    }


def as_text(plan: Plan) -> str:
    """Return the plan as lines for a person."""
    return "".join(f"{one_line(line)}\n" for line in _lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    yield f"enforcement: {plan.level}"
    yield f"Landlock: ABI {plan.abi}" if plan.abi else "Landlock: none"
    sockets = ", ".join(plan.sockets) or "none but socketpair"
    yield f"seccomp: sockets: {sockets}" if plan.seccomp else "seccomp: none"
    yield f"broker: {', '.join(plan.brokered) or 'not needed'}"
    yield f"loader as a program: {_loader(plan)}"
    for rule, label, held_by in plan.rules:
        words = f"{rule.resource_type} {rule.operation} {rule.target}"
        yield f"  {words}: {label} ({held_by})"
    yield f"egress: {_list(_endpoint(*each) for each in plan.endpoints)}"
    yield from _runtime(plan)
    yield from _inheritance(plan.inheritance)
    for heading, lines in (("missing", plan.missing), ("note", plan.notes)):
        yield from (f"{heading}: {line}" for line in lines)


def _loader(plan: Plan) -> str:
    """Say what stops the loader from running files that may only be read."""
    if plan.brokered:
        return "refused (broker)"
    return "runs what may be read, under the same rules: no broker looks"


def _endpoint(host: str, port: int | None) -> str:
    if port is None:
        return f"{host} at every port"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _runtime(plan: Plan) -> Iterator[str]:
    """Yield what every command may touch, and this one because of what it is."""
    groups: dict[str, list[str]] = {"read": [], "written": [], "started": []}
    for path, rights, why in plan.paths:
        if rights and why != DECLARED:
            group = "started" if rights & EXECUTE else "written" if rights & WRITE_FILE else "read"
            groups[group].append(path)
    for group, paths in groups.items():
        yield f"{group} without a rule: {_list(dict.fromkeys(paths))}"


def _inheritance(inheritance: Inheritance) -> Iterator[str]:
    kept, closed, passed, asked_for, withheld, own, limits = inheritance
    ending = f", such as {_list(closed)}" if closed else ""
    yield f"descriptors: {_list(kept)} kept; all others closed{ending}"
    yield f"environment: {len(passed)} variables passed on; set: {_list(own)}"
    for what, names in (("withheld", withheld), ("kept as asked", asked_for)):
        if names:
            yield f"environment, {what}: {_list(names)}"
    if limits:
        yield f"limits: {_list(f'{name}={number}' for name, number in limits)}"


def _list(values: Iterable[object]) -> str:
    return ", ".join(map(str, values)) or "none"
