"""The approval service as the guard asks it: once, in the order of the contract, fail closed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from guard.confined import confined

from democrai_osguard.access import AccessRequest, Rule, Subject
from democrai_osguard.guard import process_guard_context, use_approvals

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Service:
    """Answers from lists, and counts what it is asked."""

    denied: tuple[str, ...] = ()
    approved: tuple[str, ...] = ()
    for_session: tuple[str, ...] = ()
    broken: bool = False
    asked: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)

    def denial(self, request: AccessRequest) -> Rule | None:
        self.asked.append(request.target)
        if self.broken:
            raise OSError("the database is gone")
        return request.rule if request.target in self.denied else None

    def session_approval(self, request: AccessRequest) -> Rule | None:
        usable = request.session_key == "s" and request.target in self.for_session
        return request.rule if usable else None

    def permanent_approval(self, request: AccessRequest) -> Rule | None:
        # The service works on files of its own, which no guard allows.
        with open("/etc/passwd", encoding="utf-8") as file:
            file.read()
        return request.rule if request.target in self.approved else None

    def refused(self, request: AccessRequest, chain: tuple[Subject, ...]) -> None:
        self.noted.append(f"{request} via {', '.join(map(str, chain))}")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DEMOCRAI_TEMP_DIR", str(tmp_path / "temp"))
    (tmp_path / "file").write_text("x")
    return str(tmp_path / "file")


_READS = 100


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (PermissionError, RuntimeError) as error:
        return f"{type(error).__name__} {getattr(error, 'code', '')}"


def under(
    service: Service, path: str, rules: tuple[Rule, ...] = (), session_key: str | None = None
) -> object:
    """Return what the first and last of many reads give, and whether it was asked for each."""

    def check() -> object:
        use_approvals(service)
        with process_guard_context("m", "module", rules, session_key=session_key):
            found = [_read(path) for _ in range(_READS)]
        often = service.asked.count(path) > _READS / 2
        return [found[0], found[-1], "asked often" if often else "remembered"]

    return confined(check)


def test_an_approval_opens_what_no_rule_does_and_is_asked_once(file: str) -> None:
    assert under(Service(approved=(file,)), file) == ["x", "x", "remembered"]


def test_a_session_approval_counts_for_its_session_only(file: str) -> None:
    service = Service(for_session=(file,))
    denied = "FilesystemDenied sandbox_filesystem_denied"
    assert under(service, file, session_key="s") == ["x", "x", "remembered"]
    assert under(service, file, session_key="other") == [denied, denied, "remembered"]


def test_a_denial_wins_over_a_rule(file: str) -> None:
    rule = Rule("filesystem", "read", file)  # type: ignore[arg-type]
    denied = "FilesystemDenied sandbox_filesystem_denied"
    assert under(Service(denied=(file,)), file, (rule,)) == [denied, denied, "remembered"]


def test_a_broken_backend_is_no_denial_and_keeps_access_closed(file: str) -> None:
    failed = "ApprovalCheckFailed sandbox_external_access_check_failed"
    found = under(Service(broken=True), file)
    assert isinstance(found, list)
    assert found[:2] == [failed, failed]


def test_probes_of_files_note_no_request_and_connections_do(file: str) -> None:
    def check() -> object:
        import socket  # noqa: PLC0415 - in the child only

        service = Service()
        use_approvals(service)
        with process_guard_context("m", "module"):
            _read(file)
            try:
                socket.create_connection(("192.0.2.1", 9), 1)
            except PermissionError as error:
                return [service.noted, str(error)]
        return None

    assert confined(check) == [
        ["module:m: network connect 192.0.2.1:9 via module:m"],
        "sandbox_network_denied:m:connect:192.0.2.1:9",
    ]
