"""What the command finds in its environment. Pure.

DEMOCRAI_* is set by the launcher alone: what the caller had under such names is dropped, but for
the identity that the command acts with.
"""

from __future__ import annotations

from .access import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .rules import Rule, Subject

PREFIX = "DEMOCRAI_"
_SUBJECT = "DEMOCRAI_NETWORK_SUBJECT"
_SUBJECT_KIND = "DEMOCRAI_NETWORK_SUBJECT_KIND"
_PASSED_ON = (
    _SUBJECT,
    _SUBJECT_KIND,
    "DEMOCRAI_USER_ID",
    "DEMOCRAI_ORGANIZATION_ID",
    "DEMOCRAI_SESSION_KEY",
)


# Words in the names under which people keep what nobody else should have.
_SECRET_WORDS = frozenset(
    (
        "APIKEY", "AUTH", "AUTHORIZATION", "COOKIE", "COOKIES", "CREDENTIAL", "CREDENTIALS", "DSN",
        "KEY", "KEYS", "PASS", "PASSPHRASE", "PASSWD", "PASSWORD", "PASSWORDS", "SECRET", "SECRETS",
        "TOKEN", "TOKENS",
    )
)  # fmt: skip
_SECRET_ENDINGS = ("PASSWORD", "SECRET", "TOKEN", "APIKEY", "DATABASE_URL")
KEEP_ALL = "*"


def child_environment(
    caller: Mapping[str, str],
    rules: Sequence[Rule],
    subject: Subject | None,
    keep: Collection[str] = (),
) -> dict[str, str]:
    """Return the command's environment; raise UsageError when the rules do not fit into it."""
    kept = {
        name: value
        for name, value in caller.items()
        if name in keep or KEEP_ALL in keep or not looks_secret(name)
    }
    child = {name: value for name, value in kept.items() if not name.startswith(PREFIX)}
    child.update({name: caller[name] for name in _PASSED_ON if name in caller})
    child["DEMOCRAI_ACCESS"] = dump(rules)
    if subject is not None:
        child[_SUBJECT], child[_SUBJECT_KIND] = subject.name, subject.type
    return child


def looks_secret(name: str) -> bool:
    """Tell whether a variable of this name is likely to hold a secret."""
    upper = name.upper()
    return upper.endswith(_SECRET_ENDINGS) or not _SECRET_WORDS.isdisjoint(upper.split("_"))
