"""What the command finds in its environment. Pure.

DEMOCRAI_* is set by the launcher alone: what the caller had under such names is dropped, but for
the identity that the command acts with.
"""

# ruff: noqa: PLC0415 - what most launches do not need is imported where it is needed

from __future__ import annotations

from .rules import NETWORK, Subject, check_subject_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .rules import Rule

    Names = tuple[str, ...]

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
CHAIN = "DEMOCRAI_SUBJECT_CHAIN"  # through whom the subject acts; it ends with the subject


# Words in the names under which people keep what nobody else should have.
_SECRET_WORDS = frozenset(
    (
        "APIKEY", "AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "COOKIES", "CRED", "CREDENTIAL",
        "CREDENTIALS", "CREDS", "DSN", "JWT", "KEY", "KEYS", "PASS", "PASSCODE", "PASSPHRASE",
        "PASSWD", "PASSWORD", "PASSWORDS", "PAT", "PGPASS", "SECRET", "SECRETS", "SSHPASS", "TOKEN",
        "TOKENS", "WEBHOOK", "WEBHOOKS",
    )
)  # fmt: skip
_SECRET_ENDINGS = (
    "ACCESSKEY", "APIKEY", "AUTHKEY", "CONNECTION_STRING", "DATABASE_URI", "DATABASE_URL", "DB_URI",
    "DB_URL", "MONGODB_URI", "MONGODB_URL", "MONGO_URI", "MONGO_URL", "PASSFILE", "PASSPHRASE",
    "PASSWD", "PASSWORD", "PRIVATEKEY", "SECRET", "SECRETKEY", "SIGNINGKEY", "TOKEN",
)  # fmt: skip
# Alone or with words of a folder it is one; with any other it is a password.
_FOLDER = "PWD"
_OF_A_FOLDER = frozenset(
    ("PWD", "INIT", "INITIAL", "LAST", "OLD", "ORIG", "ORIGINAL", "PREV", "START")
)
_END_OF_AUTHORITY = ("/", "?", "#", " ", "\t", "\n", '"', "'", ",")
_PASSWORD_FIELD = "password="  # noqa: S105 - of a connection string, or of a query
KEEP_ALL = "*"


def child_environment(
    caller: Mapping[str, str],
    rules: Sequence[Rule],
    subject: Subject | None,
    keep: Collection[str] = (),
) -> dict[str, str]:
    """Return the command's environment.

    Raise UsageError when the rules do not fit into it, or when the caller's subject is of no kind.
    """
    kept = {
        name: value
        for name, value in caller.items()
        if name in keep or KEEP_ALL in keep or not looks_secret(name, value)
    }
    child = {name: value for name, value in kept.items() if not name.startswith(PREFIX)}
    child.update({name: caller[name] for name in _PASSED_ON if name in caller})
    child["DEMOCRAI_ACCESS"] = _written(rules) if rules else "[]"
    if CHAIN in caller and (subject is None or subject == _subject(caller)):
        child[CHAIN] = caller[CHAIN]
    if subject is None:
        _check_kind(child)
    else:
        child[_SUBJECT], child[_SUBJECT_KIND] = subject.name, subject.type
    return child


def _check_kind(child: Mapping[str, str]) -> None:
    if _SUBJECT_KIND in child:
        check_subject_type(child[_SUBJECT_KIND], at=_SUBJECT_KIND)


def _written(rules: Sequence[Rule]) -> str:
    from .access import dump

    return dump([_spelt(rule) if rule.resource_type == NETWORK else rule for rule in rules])


def _spelt(rule: Rule) -> Rule:
    """Return a network rule with its target in normal form: a person may have typed it."""
    from .endpoints import normal
    from .rules import Rule

    return Rule(rule.resource_type, rule.operation, normal(rule.target), rule.subject)


def names_of(
    caller: Mapping[str, str], child: Mapping[str, str]
) -> tuple[Names, Names, Names, Names]:
    """Return which variables pass, which of them look secret, which stay behind, which are set."""
    passed = tuple(sorted(name for name in child if name in caller and not name.startswith(PREFIX)))
    return (
        passed,
        tuple(name for name in passed if looks_secret(name, child[name])),
        tuple(sorted(caller.keys() - child.keys())),
        tuple(sorted(name for name in child if name.startswith(PREFIX))),
    )


def _subject(caller: Mapping[str, str]) -> Subject:
    return Subject(caller.get(_SUBJECT_KIND, ""), caller.get(_SUBJECT, ""))


def looks_secret(name: str, value: str = "") -> bool:
    """Tell whether a variable of this name and value is likely to hold a secret."""
    apart = _apart(name)
    words = apart.split("_")
    if apart.endswith(_SECRET_ENDINGS) or not _SECRET_WORDS.isdisjoint(words):
        return True
    if _FOLDER in words and not _OF_A_FOLDER.issuperset(words):
        return True
    return holds_password(value)


def _apart(name: str) -> str:
    """Return a name with its words apart: MY_NAME, my-name, my.name and myName are all MY_NAME."""
    if not name.isupper() and not name.islower():
        pairs = zip(name, " " + name, strict=False)
        name = "".join("_" + c if c.isupper() and before.islower() else c for c, before in pairs)
    return name.upper().replace("-", "_").replace(".", "_")


def holds_password(value: str) -> bool:
    """Tell whether a value has a URL with a password in it, or a field of that name."""
    if "=" in value and _PASSWORD_FIELD in value.lower():
        return True
    return "://" in value and any(_names_password(rest) for rest in value.split("://")[1:])


def _names_password(rest: str) -> bool:
    end = min((rest.index(each) for each in _END_OF_AUTHORITY if each in rest), default=len(rest))
    user, at, _ = rest[:end].rpartition("@")
    return bool(at and user.partition(":")[2])
