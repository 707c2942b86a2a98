"""The process of the daemon: reads its settings, gives up what it inherited, then serves."""

from __future__ import annotations

import argparse
import grp
import math
import os
import re
import resource
import signal
import sys
from typing import TYPE_CHECKING, Final

from . import notify
from .cgroups import NoCgroups, find_mount
from .foreign_programs import PLACES
from .journal import JournalFailed
from .layers import LayerFailed
from .own_socket import OwnSocket
from .protocol import DEFAULT_SOCKET, LAYERS, MAX_REFRESH, SOCKET_VARIABLE
from .service import Service, Settings

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from .notify import Manager

DEFAULT_STATE: Final = "/run/democrai-osguard/state"
DESCRIPTORS: Final = 65536
MAX_READY_BOXES: Final = 64
_NUMBER: Final = re.compile(r"[0-9]{1,3}")
_INSTANCE: Final = re.compile(r"[a-z0-9]{1,8}")
FAILED: Final = 1


def run() -> None:
    """Be democrai-osguard-helper."""
    sys.exit(serve(sys.argv[1:]))


def serve(arguments: Sequence[str], checkpoint: Callable[[str], None] | None = None) -> int:
    """Serve until a signal; return the exit code."""
    options = _options(arguments)
    if os.geteuid() != 0:
        return _failed("only root can hold egress")
    manager = _give_up_inheritance()
    try:
        settings = _settings(options)
        _serve(settings, manager, OwnSocket(options.socket, options.group), checkpoint)
    except (NoCgroups, JournalFailed, LayerFailed, OSError) as error:
        return _failed(error)
    return 0


def _failed(why: object) -> int:
    print(f"democrai-osguard-helper: {why}", file=sys.stderr)  # noqa: T201 - the one line
    return FAILED


def _serve(
    settings: Settings,
    manager: Manager,
    own: OwnSocket,
    checkpoint: Callable[[str], None] | None,
) -> None:
    def listen() -> socket.socket:
        return manager.listener() or own.listen()

    try:
        service = Service(settings, listen, *([checkpoint] if checkpoint else []))
        service.start()
        _work(service, manager)
    finally:
        own.remove()


def _work(service: Service, manager: Manager) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: service.loop.stop())
    if manager.watchdog_seconds:
        service.loop.every(manager.watchdog_seconds / 3, lambda: manager.tell("WATCHDOG=1"))
    service.diary.say(service.summary())
    service.changed = lambda: manager.tell(f"STATUS={service.summary()}")
    manager.tell(f"READY=1\nSTATUS={service.summary()}")
    service.loop.run()
    manager.tell("STOPPING=1")
    service.stop()


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="democrai-osguard-helper", description="Holds network egress of sandboxes. Needs root."
    )
    place = os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET
    parser.add_argument(
        "--socket", type=_place, default=place, help="where to listen, without a manager"
    )
    parser.add_argument("--group", type=_group, help="the group that may open the socket")
    parser.add_argument("--instance", default="main", help="1 to 8 of a-z and 0-9")
    parser.add_argument("--state", type=_place, default=DEFAULT_STATE, help="folder of the journal")
    parser.add_argument("--layers", default=",".join(LAYERS), help="which layers to use")
    parser.add_argument("--refresh-seconds", type=_seconds, default=60.0, help="age of a name")
    parser.add_argument("--resolver-socket", type=_place, help="one that a manager starts")
    parser.add_argument("--ready-boxes", type=_boxes, default=2, help="boxes made beforehand")
    parser.add_argument(
        "--may-leave", default="", help="programs of others that a confined process may leave"
    )
    parser.add_argument(
        "--require-no-new-privs", action="store_true", help="of every user but root"
    )
    options = parser.parse_args(arguments)
    if not _INSTANCE.fullmatch(options.instance):
        parser.error("--instance: 1 to 8 of a-z and 0-9")
    if not set(options.layers.split(",")) <= set(LAYERS):
        parser.error(f"--layers: some of {', '.join(LAYERS)}")
    if not set(options.may_leave.split(",")) <= {"", *PLACES.values()}:
        parser.error(f"--may-leave: some of {', '.join(PLACES.values())}")
    return options


def _place(text: str) -> str:
    if not os.path.isabs(text):  # the daemon works in the root folder
        raise argparse.ArgumentTypeError("expected an absolute path")
    return text


def _group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"there is no group {name!r}") from error


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= MAX_REFRESH:  # which nothing is for what is no number
        raise argparse.ArgumentTypeError(f"more than 0 and at most {MAX_REFRESH} seconds")
    return number


def _boxes(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > MAX_READY_BOXES:
        raise argparse.ArgumentTypeError(f"0 to {MAX_READY_BOXES}")
    return int(text)


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        instance=options.instance,
        state=options.state,
        mount=find_mount(),
        layers=tuple(options.layers.split(",")),
        refresh_seconds=options.refresh_seconds,
        resolver_socket=options.resolver_socket,
        ready_boxes=options.ready_boxes,
        may_leave=frozenset(options.may_leave.split(",")),
        require_no_new_privs=options.require_no_new_privs,
    )


def _give_up_inheritance() -> Manager:
    """Keep the manager's words and sockets, the standard streams, and nothing else."""
    manager = notify.from_environment(os.environ)
    os.environ.clear()
    os.closerange(notify.FIRST_DESCRIPTOR + manager.sockets, DESCRIPTORS)
    os.umask(0o077)
    os.chdir("/")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return manager
