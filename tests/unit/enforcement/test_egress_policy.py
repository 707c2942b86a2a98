"""Network rules as the helper takes them."""

from __future__ import annotations

import contextlib
import os
import re
import socket

import pytest

from democrai_osguard import Rule, Subject
from democrai_osguard.enforcement.egress import (
    NotConfined,
    confine_this_process,
    open_sockets,
    policy_of,
)
from democrai_osguard.settings import OsSettings


@pytest.mark.parametrize(
    ("target", "endpoints", "names"),
    [
        ("192.0.2.7:443", [("192.0.2.7", 443)], []),
        ("192.0.2.0/24", [("192.0.2.0/24", None)], []),
        ("https://[2001:db8::7]/v1", [("2001:db8::7", 443)], []),
        ("localhost:80", [("127.0.0.0/8", 80), ("::1", 80)], []),
        ("https://api.example.com/v1", [], [("api.example.com", 443)]),
        ("*.example.com", [], [("*.example.com", None)]),
    ],
)
def test_every_network_rule_opens_its_host_and_port(
    target: str, endpoints: list[tuple[str, int | None]], names: list[tuple[str, int | None]]
) -> None:
    for operation in ("connect", "receive", "send"):
        places, hosts = policy_of([Rule.of("network", operation, target)])
        assert [(str(each.network), each.port) for each in places] == endpoints
        assert [(each.name, each.port) for each in hosts] == names


def test_other_rules_open_nothing() -> None:
    rules = [
        Rule.of("filesystem", "read", "/srv"),
        Rule.of("system_dependency", "execute", "git"),
    ]
    assert policy_of(rules) == ((), ())


def test_without_a_helper_the_caller_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMOCRAI_OS_HELPER_SOCKET", "/nonexistent/helper.sock")
    with pytest.raises(NotConfined, match="egress_not_enforced"):
        confine_this_process([], Subject.parse("core:core"))


def test_without_its_store_no_process_is_confined_and_none_is_left() -> None:
    with pytest.raises(NotConfined, match="follows the approvals"):
        confine_this_process([], Subject.parse("core:core"), approvals="sqlite://nowhere")
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_sockets_that_are_open_are_told_apart_from_those_of_this_host() -> None:
    with contextlib.ExitStack() as kept:
        listener = kept.enter_context(socket.create_server(("127.0.0.1", 0)))
        place = "{}:{}".format(*listener.getsockname())
        kept.enter_context(socket.create_connection(listener.getsockname()))
        for each in socket.socketpair():
            kept.enter_context(each)
        told = open_sockets()
        assert {f"at {place}", f"connected to {place}"} <= set(told)
        assert listener.fileno() >= 0  # still open: looking at them closes none
        words = rf"held by nothing: \d+ network sockets .*{re.escape(f'connected to {place}')}"
        with pytest.raises(NotConfined, match=words):
            confine_this_process(
                [], Subject.parse("core:core"), settings=OsSettings(require="full")
            )
