"""Other sandboxes, each with the strictest sensible settings for one and the same policy.

The policy: read one folder; read, create, modify and delete in another; the interpreter and its
libraries; no network, no other process, no other program. What a peer cannot express stays open,
and the report shows it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel.conftest import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.techniques import World

PYTHON = "/usr/bin/python3"
NOBODY = 65534
_NAMELESS = 59999  # nobody's number, within the range of ordinary users
_SECONDS = 60
_UNITS = Path("/run/systemd/system")


@dataclass(frozen=True)
class Peer:
    """A sandbox: its program, and how it runs a command as a user for a world."""

    name: str
    program: str
    run: Callable[[World, int, list[str]], tuple[str, int]]
    settings: str  # as an operator would write them, for the report
    user: int = NOBODY  # who stands for an ordinary user

    def version(self) -> str:
        """Return the first line that it says about itself; empty where it is not installed."""
        if shutil.which(self.program) is None:
            return ""
        done = subprocess.run(
            [self.program, "--version"], capture_output=True, text=True, check=False
        )
        return done.stdout.partition("\n")[0]


def _readable(w: World) -> Path:
    return w.inside.parent / "readable"


def _as_user(command: list[str], uid: int, **environment: str) -> tuple[str, int]:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_SECONDS,
        user=uid, group=uid, extra_groups=[], cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": "/", **environment},
    )  # fmt: skip
    return done.stdout, done.returncode


_LAUNCHER = """\
--read INSIDE --create INSIDE --modify INSIDE --delete INSIDE --read READABLE"""


def _launcher(w: World, uid: int, command: list[str]) -> tuple[str, int]:
    # A copy that every user can read, since a checkout may be in somebody's home.
    package = w.inside.parent / "packages/democrai_osguard_launcher"
    if not package.exists():
        shutil.copytree(PACKAGES / package.name, package)
    own = [PYTHON, "-m", package.name, *_filled(_LAUNCHER, w), "--", *command]
    return _as_user(own, uid, PYTHONPATH=str(package.parent), PYTHONDONTWRITEBYTECODE="1")


_BWRAP = """\
--unshare-all --unshare-user --disable-userns --die-with-parent --new-session --cap-drop ALL
--clearenv --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64
--symlink usr/bin /bin --proc /proc --dev /dev --ro-bind READABLE READABLE --bind INSIDE INSIDE
--remount-ro /"""


def _bubblewrap(w: World, uid: int, command: list[str]) -> tuple[str, int]:
    return _as_user(["bwrap", *_filled(_BWRAP, w), "--", *command], uid)


_FIREJAIL = """\
--quiet --noprofile --net=none --caps.drop=all --nonewprivs --noroot --nogroups --seccomp
--seccomp.block-secondary --restrict-namespaces --protocol=unix --ipc-namespace --private-dev
--private-etc=ld.so.cache --disable-mnt --noexec=INSIDE --whitelist=INSIDE --whitelist=READABLE
--read-only=READABLE --nodbus --nodvd --noinput --nosound --notv --nou2f --novideo --no3d
--memory-deny-write-execute --deterministic-exit-code"""
# Firejail serves only users with a name, and not nobody: one is lent, in a mount namespace.
_NAMED = """
set -e
{ cat /etc/passwd; echo "report:x:$1:$1::/nonexistent:/bin/sh"; } > "$2"
mount --bind "$2" /etc/passwd
user=$1
shift 2
exec setpriv --reuid "$user" --regid "$user" --clear-groups firejail "$@"
"""


def _firejail(w: World, uid: int, command: list[str]) -> tuple[str, int]:
    words = _filled(_FIREJAIL, w)
    if uid == 0:  # root has no user namespace to go to
        words.remove("--noroot")
        return _as_user(["firejail", *words, "--", *command], uid)
    named = ["unshare", "-m", "sh", "-c", _NAMED, "sh", str(uid), f"{w.inside.parent}/passwd"]
    return _as_user([*named, *words, "--", *command], 0)


_SYSTEMD = """\
BindPaths=INSIDE
BindReadOnlyPaths=READABLE /etc/ld.so.cache
CapabilityBoundingSet=
ExecPaths=/usr/bin/python3 /usr/lib
IPAddressDeny=any
KeyringMode=private
LockPersonality=yes
MemoryDenyWriteExecute=yes
NoExecPaths=/ INSIDE
NoNewPrivileges=yes
PrivateDevices=yes
PrivateIPC=yes
PrivateNetwork=yes
PrivateUsers=yes
ProcSubset=pid
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=tmpfs
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProtectSystem=strict
RestrictAddressFamilies=none
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
TemporaryFileSystem=/etc:ro /opt:ro /srv:ro /tmp:ro /var:ro"""


def _systemd(w: World, uid: int, command: list[str]) -> tuple[str, int]:
    """Run it as a service: `systemd-run --wait` would need a message bus beside systemd."""
    unit = _UNITS / f"escape-report-{os.getpid()}.service"
    said = Path(f"/run/escape-report-{os.getpid()}")
    words = " ".join(f'"{word.translate(_QUOTED)}"' for word in command)
    own = f"ExecStart={words}\nStandardOutput=truncate:{said}\nStandardError=null\nType=oneshot\n"
    settings = "\n".join(_filled(_SYSTEMD, w, separator="\n"))
    unit.write_text(
        f"[Unit]\nDefaultDependencies=no\n[Service]\n{own}User={uid}\nGroup={uid}\n{settings}\n"
    )
    try:
        subprocess.run(["systemctl", "daemon-reload"], check=True, timeout=_SECONDS)
        started = subprocess.run(
            ["systemctl", "start", unit.name], capture_output=True, check=False, timeout=_SECONDS
        )
        return said.read_text() if said.exists() else "", started.returncode
    finally:
        subprocess.run(["systemctl", "reset-failed", unit.name], capture_output=True, check=False)
        unit.unlink()
        said.unlink(missing_ok=True)


_SRT = """\
{
  "network": {"allowedDomains": [], "deniedDomains": []},
  "filesystem": {
    "denyRead": ["/"],
    "allowRead": ["/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "READABLE", "INSIDE"],
    "allowWrite": ["INSIDE"],
    "denyWrite": []
  }
}"""


def _srt(w: World, uid: int, command: list[str]) -> tuple[str, int]:
    home = _own_folder(w, uid, "home")
    settings = home / "settings.json"
    settings.write_text("\n".join(_filled(_SRT, w, separator="\n")))
    return _as_user(["srt", "--settings", str(settings), "--", *command], uid, HOME=str(home))


_CODEX = """\
[permissions.report.filesystem]
":minimal" = "read"
"/etc" = "deny"
"READABLE" = "read"
"INSIDE" = "write"
[permissions.report.network]
enabled = false"""


def _codex(w: World, uid: int, command: list[str]) -> tuple[str, int]:
    home = _own_folder(w, uid, "home")
    (home / "config.toml").write_text("\n".join(_filled(_CODEX, w, separator="\n")))
    own = ["codex", "sandbox", "-P", "report", "-C", str(w.inside), "--", *command]
    # It keeps programs of its own at home, which must not be in the folder of temporary files.
    temporary = str(_own_folder(w, uid, "temporary"))
    return _as_user(own, uid, HOME=str(home), CODEX_HOME=str(home), TMPDIR=temporary)


def _own_folder(w: World, uid: int, name: str) -> Path:
    """Return a folder that the sandbox itself may use, and who is inside may not."""
    folder = w.inside.parent / name
    folder.mkdir(exist_ok=True)
    os.chown(folder, uid, uid)
    return folder


_QUOTED = str.maketrans({'"': '\\"', "\\": "\\\\", "%": "%%", "$": "$$"})


def _filled(settings: str, w: World, separator: str | None = None) -> list[str]:
    text = settings.replace("INSIDE", str(w.inside)).replace("READABLE", str(_readable(w)))
    return text.split(separator)


OURS = "democrai-launch"
SYSTEMD = "systemd"
PEERS = (
    Peer(OURS, "true", _launcher, _LAUNCHER),
    Peer("bubblewrap", "bwrap", _bubblewrap, _BWRAP),
    Peer("firejail", "firejail", _firejail, _FIREJAIL, _NAMELESS),
    Peer(SYSTEMD, "systemctl", _systemd, _SYSTEMD),
    Peer("Anthropic's srt", "srt", _srt, _SRT),
    Peer("OpenAI's codex sandbox", "codex", _codex, _CODEX),
)
