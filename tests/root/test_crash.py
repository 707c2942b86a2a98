"""The daemon is killed at every step that it takes: nothing opens, and the next one tidies up."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING, Final

import pytest
from root.daemons import HELPER, Resident, eventually, resident
from root.lab import ALLOWED, FORBIDDEN, PORT

from democrai_osguard_helper.client import Client, HelperUnavailable
from democrai_osguard_helper.endpoints import Endpoint, parse_network
from democrai_osguard_helper.protocol import Update

if TYPE_CHECKING:
    from root.daemons import Daemon

pytestmark = pytest.mark.needs("bpf", "iptables", "ipset")
ONE: Final = (Endpoint(parse_network(ALLOWED[4]), PORT),)
MORE: Final = (*ONE, Endpoint(parse_network(ALLOWED[6]), PORT))
REFUSED: Final = {"Operation not permitted", "Connection refused"}
PACKAGE: Final = "democrai_osguard_helper"
STEPS: Final = (
    "firewall adopted",
    "bpf adopted",
    "box made",
    "firewall prepared",
    "firewall tried",
    "bpf prepared",
    "bpf tried",
    "record written",
    "firewall applied",
    "bpf applied",
    "policy applied",
    "peer moved",
    "change written",
    "change applied",
    "boxes removed",
)


def _drive(daemon: Daemon, old: Resident) -> None:
    """Ask for everything once; whatever the daemon dies of, it must be dead in the end."""
    assert daemon.process is not None
    while daemon.process.poll() is None:
        with contextlib.suppress(HelperUnavailable), Client(daemon.socket) as client:
            client.update(Update(old.sandbox, MORE, ()))
            break
        time.sleep(0.01)
    Resident(daemon.socket, ONE).end()


LAYERS: Final = ("firewall", "bpf", "bpf,firewall")
# Each layer alone: together, one would hide what the other lets through.
KILLS: Final = [
    (layers, step)
    for step in STEPS
    for layers in LAYERS
    if step.split()[0] == layers
    or (step.split()[0] not in {"firewall", "bpf"} and "," not in layers)
    or (step, layers) == ("policy applied", "bpf,firewall")
]


@pytest.mark.always
@pytest.mark.parametrize(("layers", "step"), KILLS)
def test_a_kill_at_any_step_opens_nothing(daemon: Daemon, layers: str, step: str) -> None:
    daemon.layers = layers
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child:
        daemon.kill()
        child.begin("storm", FORBIDDEN[4], PORT)
        daemon.start(die_at=step)
        _drive(daemon, child)
        assert daemon.process is not None
        assert daemon.process.wait(60) == -9, "the step was never reached"
        daemon.start()
        daemon.wait()
        assert child.weather() == "silent"
        assert child.does("tcp", ALLOWED[4], PORT) == "allowed"
        for attempt in ("tcp", "udp"):
            assert child.does(attempt, FORBIDDEN[4], PORT) in REFUSED
    with Client(daemon.socket) as client:
        assert eventually(lambda: not client.list().sandboxes)


def test_every_step_that_the_helper_takes_is_among_them() -> None:
    source = "".join(path.read_text() for path in sorted((HELPER / PACKAGE).glob("*.py")))
    named = set(re.findall(r'checkpoint\(f?"([^"]+)"\)', source))
    layers = ("firewall", "bpf")
    assert {step.replace("{layer.name}", name) for step in named for name in layers} == set(STEPS)


def test_a_storm_gets_through_where_nothing_holds(daemon: Daemon) -> None:
    """The control of the storms here: one success is enough, and it is noticed."""
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child:
        child.begin("storm", ALLOWED[4], PORT)
        assert child.result() == "allowed"


def test_connections_with_an_own_listener_survive_a_restart(daemon: Daemon) -> None:
    daemon.start()
    daemon.wait()
    with resident(daemon.socket, ONE) as child:
        assert child.does("own", "127.0.0.1", 0) == "allowed"
        daemon.kill()
        daemon.start()
        daemon.wait()
        assert child.does("own_again", "127.0.0.1", 0) == "allowed"
