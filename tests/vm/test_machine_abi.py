"""Each kernel holds exactly what its Landlock can, and says so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from vm.conftest import QUICK, document
from vm.machine_operator import SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vm.machine_operator import Operator

ACTS = f"/usr/bin/python3 -I {SCRIPTS}/acts.py"
SOCKET = "/var/tmp/acts/outside.sock"
TCP = "127.0.0.1:7004"
ALONE = "DEMOCRAI_OS_HELPER_SOCKET=/nonexistent/helper"
USERS = ("ann",) if QUICK else ("ann", "root")
NAMES = ("unix socket", "pathname", "abstract", "tcp", "other tcp", "udp", "signal", "truncate")
# From this ABI on Landlock judges the act itself; before it, seccomp refuses more or nobody does.
SIGNALS, PATHNAMES = 6, 9
SINCE = {
    "truncation": 3,
    "TCP ports": 4,
    "abstract unix sockets and signals": 6,
    "all threads at once": 8,
    "pathname unix sockets": 9,
    "UDP": 10,
}


@pytest.fixture(scope="module", autouse=True)
def _outside(operator: Operator) -> Iterator[None]:
    """Let ann run what the acts are aimed at."""
    machine = operator.machine
    machine.must_succeed(f"systemd-run --quiet --unit=acts --uid=ann -- {ACTS} serve")
    machine.wait_until("test -e /var/tmp/acts/pid")
    yield
    machine.must_succeed("systemctl stop acts.service; rm -rf /var/tmp/acts")


def tried(
    operator: Operator, options: str | None, user: str = "ann", surroundings: str = ""
) -> dict[str, str]:
    """Return what came of each act, under the launcher with these options or free."""
    words = ACTS if options is None else f"{surroundings} democrai-launch {options} -- {ACTS}"
    said = operator.machine.must_succeed(words, user)
    read = json.loads(said.splitlines()[-1])
    assert isinstance(read, dict)
    return read


@pytest.mark.parametrize("user", USERS)
def test_without_the_launcher_every_act_works(operator: Operator, user: str) -> None:
    assert tried(operator, None, user) == dict.fromkeys(NAMES, "allowed")


@pytest.mark.parametrize("user", USERS)
def test_under_the_launcher_only_what_the_kernel_cannot_judge_is_left(
    operator: Operator, abi: int, user: str
) -> None:
    expected = dict.fromkeys(NAMES, "refused")
    expected["signal"] = "allowed" if abi < SIGNALS else "refused"
    expected["unix socket"] = "refused" if abi < PATHNAMES else "allowed"
    assert tried(operator, "--read /", user) == expected


def test_a_declared_socket_can_be_reached_and_no_other(operator: Operator, abi: int) -> None:
    level = "" if abi >= PATHNAMES else "--best-effort"
    result = tried(operator, f"{level} --read / --modify {SOCKET}")
    assert result["pathname"] == "allowed"
    if abi >= SIGNALS:
        assert result["abstract"] == "refused"


@pytest.mark.parametrize("user", USERS)
def test_without_the_helper_a_declared_port_can_be_reached_and_no_other(
    operator: Operator, user: str
) -> None:
    result = tried(operator, f"--read / --connect {TCP}", user, ALONE)
    reached = {name: result[name] for name in ("tcp", "other tcp", "udp")}
    assert reached == {"tcp": "allowed", "other tcp": "refused", "udp": "refused"}


def test_what_is_not_held_is_said(operator: Operator, abi: int) -> None:
    said = operator.machine.must_succeed("democrai-launch --explain --read / -- /bin/true", "ann")
    assert f"Landlock: ABI {abi}\n" in said
    assert ("signals" in said) == (abi < SIGNALS)


@pytest.mark.parametrize("user", USERS)
def test_the_receipt_tried_what_this_kernel_holds_and_names_the_rest(
    operator: Operator, abi: int, user: str
) -> None:
    place = f"/var/tmp/receipt-of-{user}"
    launched = f"democrai-launch --read / --receipt {place} -- /bin/true"
    receipt: Any = document(operator.machine.must_succeed(f"{launched} && cat {place}", user))
    plan, tried = receipt["plan"], receipt["tried"]
    assert plan["landlock"]["abi"] == abi
    assert ("signals" in {trial["class"] for trial in tried}) == (abi >= SIGNALS)
    assert ("signals" in f"{plan['missing']} {plan['notes']}") == (abi < SIGNALS)
    outcomes = [(trial["expected"], trial["outcome"] == "allowed") for trial in tried]
    assert set(outcomes) == {("allowed", True), ("refused", False)}


def test_status_says_what_is_held_and_from_which_abi_on_the_rest_is(
    operator: Operator, abi: int
) -> None:
    said = operator.machine.must_succeed("democrai-osguard status", "ann")
    assert [words for words in SINCE if words not in said] == []
    lacking = [words for words, since in SINCE.items() if f"{words} (ABI {since})" in said]
    assert lacking == [words for words, since in SINCE.items() if abi < since]
