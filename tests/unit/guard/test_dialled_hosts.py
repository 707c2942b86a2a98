"""The host that is judged is the one that is looked up and dialled."""

from __future__ import annotations

import _socket
import socket
import sys
from typing import Any

import pytest
from guard.confined import confined

from democrai_osguard.guard import process_guard_context

_SHARP, _JUDGED, _OTHER = "fa\u00df.example", "xn--fa-hia.example", "fass.example"


def _recorded(act: Any) -> Any:  # noqa: ANN401 - whatever the act is
    """Return which names reach the C library, or the refusal, where the sharp name is allowed."""

    def check() -> object:
        seen: list[object] = []

        def look_up(host: Any, *_args: object, **_named: object) -> object:  # noqa: ANN401 - a host
            sys.audit("socket.getaddrinfo", host, 80, 0, 0, 0)
            seen.append(host.encode("idna").decode() if isinstance(host, str) else host.decode())
            return [(2, 1, 6, "", ("192.0.2.1", 80))]

        vars(_socket)["getaddrinfo"] = look_up  # nothing leaves
        with process_guard_context("m", "module", allowed_targets=[_SHARP]):
            try:
                act()
            except (PermissionError, ValueError) as error:
                return str(error).partition(":")[0]
        return seen

    return confined(check)


def test_the_interpreter_s_codec_has_another_host() -> None:
    assert _SHARP.encode("idna") == _OTHER.encode()  # the control


def test_a_name_is_looked_up_as_it_is_judged() -> None:
    assert _recorded(lambda: socket.getaddrinfo(_SHARP, 80)) == [_JUDGED]


@pytest.mark.parametrize("host", [_SHARP, _SHARP.encode()])
def test_past_the_wrapper_such_a_name_is_refused(host: object) -> None:
    def act() -> None:
        with socket.socket() as raw:
            sys.audit("socket.connect", raw, (host, 80))  # what the C method reports

    assert _recorded(act) == "sandbox_network_denied"
    assert _recorded(lambda: socket.getaddrinfo(_SHARP.encode(), 80)) == "sandbox_network_denied"


@pytest.mark.parametrize("name", ["connect", "connect_ex", "sendto", "sendmsg"])
@pytest.mark.parametrize("host", ["", b""])
def test_no_host_is_no_target_to_dial(name: str, host: object) -> None:
    def act() -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as one:
            before = {"sendto": (b"x",), "sendmsg": ([b"x"], [], 0)}.get(name, ())
            getattr(one, name)(*before, (host, 9))

    assert _recorded(act) == "network_target_missing"


def test_listening_names_no_target() -> None:
    def act() -> None:
        with socket.socket() as one:
            one.bind(("", 0))
            one.listen()

    assert _recorded(act) == []
