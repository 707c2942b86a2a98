"""Named profiles: what a tool may do to files without anybody being asked.

A profile is rules and globs for the same decision as everything else; it adds no second kind.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from democrai_osguard.access import OPERATIONS, Operation, ResourceType, Rule, Subject
from democrai_osguard.errors import ProfileError, shown
from democrai_osguard.policy.chain import Chain
from democrai_osguard.policy.decide import Policy
from democrai_osguard.policy.ledger import Ledger, Verdicts
from democrai_osguard.policy.profile import WRITES, Profile
from democrai_osguard.targets import normalize_target

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

# Reading one of these hands out a secret.
DENY_READ = (
    "~/.ssh",
    "~/.gnupg",
    "~/.aws",
    "~/.azure",
    "~/.config/gcloud",
    "~/.config/gh/hosts.yml",
    "~/.docker/config.json",
    "~/.kube",
    "~/.netrc",
    "~/.npmrc",
    "~/.pypirc",
    "~/.git-credentials",
    "~/.password-store",
    "~/.local/share/keyrings",
    "/etc/shadow",
    "/etc/gshadow",
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.kdbx",
    "id_{rsa,dsa,ecdsa,ed25519}",
)
# Writing one of these runs something later, or changes what an agent is told.
DENY_WRITE = (
    *DENY_READ,
    "~/.{bashrc,bash_profile,bash_login,bash_logout,profile,zshrc,zshenv,zprofile,zlogin}",
    "~/.config/{fish,autostart,systemd,environment.d}",
    "~/.local/bin",
    "~/.{gitconfig,vimrc,emacs,inputrc,screenrc,tmux.conf}",
    "~/.config/{git,nvim,pip}",
    "**/.git/{hooks,config,info,modules}",
    ".gitmodules",
    ".envrc",
    ".mcp.json",
    ".{claude,codex,cursor,aider,continue,gemini,vscode,idea,husky}",
    "{AGENTS,CLAUDE,GEMINI}.md",
    "sitecustomize.py",
    "usercustomize.py",
    "*.pth",
)


class ProfileName(StrEnum):
    """The profiles that an operator can choose from."""

    DISABLED = "disabled"
    WORKSPACE_WRITE = "workspace_write"
    READ_ONLY = "read_only"


def profile_policy(  # noqa: PLR0913 - what a profile consists of
    name: str,
    subject: Subject,
    workspaces: Iterable[str | os.PathLike[str]] = (),
    *,
    deny_read: Iterable[str] = DENY_READ,
    deny_write: Iterable[str] = DENY_WRITE,
    verdicts: Verdicts | None = None,
) -> Policy:
    """Return the policy of a named profile; raise ProfileError where it cannot be read.

    `disabled` allows everything. `workspace_write` reads anywhere and writes in the workspaces.
    `read_only` reads anywhere, and no approval makes it write.
    """
    if name not in list(ProfileName):
        names = ", ".join(ProfileName)
        raise ProfileError(f"{shown(name)} is not a profile ({names})")
    ledger = Ledger() if verdicts is None else verdicts
    if name == ProfileName.DISABLED:
        operations = OPERATIONS[ResourceType.FILESYSTEM]
        return Policy(Chain.of(subject, _rules("/", operations)), verdicts=ledger)
    rules = _rules("/", (Operation.READ,))
    read_only = name == ProfileName.READ_ONLY
    for workspace in () if read_only else workspaces:
        rules += _rules(normalize_target("filesystem", workspace), sorted(WRITES))
    globs = Profile.of(read_only=read_only, deny_read=deny_read, deny_write=deny_write)
    return Policy(Chain.of(subject, rules), globs, ledger)


def _rules(path: str, operations: Iterable[Operation]) -> list[Rule]:
    return [Rule(ResourceType.FILESYSTEM, operation, path) for operation in operations]
