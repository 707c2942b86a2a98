"""The process of the daemon: reads its settings, gives up what it inherited, then serves."""

from __future__ import annotations

import argparse
import grp
import os
import re
import resource
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

from . import notify
from .cgroups import NoCgroups, find_mount
from .journal import JournalFailed
from .layers import LayerFailed
from .protocol import DEFAULT_SOCKET, LAYERS, SOCKET_VARIABLE
from .service import Service, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .notify import Manager

DEFAULT_STATE: Final = "/run/democrai-osguard/state"
DESCRIPTORS: Final = 65536
BACKLOG: Final = 256
_INSTANCE: Final = re.compile(r"[a-z0-9]{1,8}")
FAILED: Final = 1


def run() -> None:
    """Be democrai-osguard-helper."""
    sys.exit(serve(sys.argv[1:]))


def serve(arguments: Sequence[str], checkpoint: Callable[[str], None] | None = None) -> int:
    """Serve until a signal; return the exit code."""
    options = _options(arguments)
    manager = _give_up_inheritance()
    try:
        settings = _settings(options)
        listener = manager.listener() or _listen(options.socket, options.group)
        service = Service(settings, listener, *([checkpoint] if checkpoint else []))
        service.start()
        _serve(service, manager)
    except (NoCgroups, JournalFailed, LayerFailed, OSError) as error:
        print(f"democrai-osguard-helper: {error}", file=sys.stderr)  # noqa: T201 - the one line
        return FAILED
    return 0


def _serve(service: Service, manager: Manager) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: service.loop.stop())
    if manager.watchdog_seconds:
        service.loop.every(manager.watchdog_seconds / 3, lambda: manager.tell("WATCHDOG=1"))
    missing = "; ".join(reason for reason in service.reasons.values() if reason)
    manager.tell(f"READY=1\nSTATUS={missing or 'every layer holds'}")
    service.loop.run()
    manager.tell("STOPPING=1")
    service.stop()


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="democrai-osguard-helper", description="Holds network egress of sandboxes. Needs root."
    )
    place = os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET
    parser.add_argument("--socket", default=place, help="where to listen, without a manager")
    parser.add_argument("--group", help="the group that may open the socket")
    parser.add_argument("--instance", default="main", help="1 to 8 of a-z and 0-9")
    parser.add_argument("--state", default=DEFAULT_STATE, help="folder of the journal")
    parser.add_argument("--layers", default=",".join(LAYERS), help="which layers to use")
    parser.add_argument("--refresh-seconds", type=float, default=60.0, help="age of a name")
    parser.add_argument("--resolver-socket", help="a resolver that the service manager starts")
    parser.add_argument("--ready-boxes", type=int, default=2, help="boxes made beforehand")
    options = parser.parse_args(arguments)
    if not _INSTANCE.fullmatch(options.instance):
        parser.error("--instance: 1 to 8 of a-z and 0-9")
    if not set(options.layers.split(",")) <= set(LAYERS):
        parser.error(f"--layers: some of {', '.join(LAYERS)}")
    return options


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        instance=options.instance,
        state=options.state,
        mount=find_mount(),
        layers=tuple(options.layers.split(",")),
        refresh_seconds=options.refresh_seconds,
        resolver_socket=options.resolver_socket,
        ready_boxes=options.ready_boxes,
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


def _listen(path: str, group: str | None) -> socket.socket:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)  # the umask keeps everybody out until the mode is set
    if group is not None:
        os.chown(path, 0, grp.getgrnam(group).gr_gid)
    os.chmod(path, 0o660)
    listener.listen(BACKLOG)
    return listener
