"""The package indexes that an install phase may reach: those that pip is set up with."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

from democrai_osguard.access import Operation, ResourceType, Rule
from democrai_osguard.errors import TargetError
from democrai_osguard.targets.network import NetworkTarget, parse_network

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_AUTHORITY = re.compile(r"[^/?#]*")
_KEYS = ("index-url", "extra-index-url")


def package_index_rules() -> tuple[Rule, ...]:
    """Return rules for pip's indexes: receiving over HTTP, and the connection beneath it."""
    rules = [rule for url in _index_urls() for rule in _rules(url)]
    return tuple(dict.fromkeys(rules))


def _rules(url: str) -> Iterator[Rule]:
    try:
        target = parse_network(_without_user(url))
    except TargetError:
        return  # a local folder, or nothing that pip could reach either
    origin = NetworkTarget(target.host, target.scheme, target.port)
    place = NetworkTarget(target.host, port=target.port)
    yield Rule(ResourceType.NETWORK, Operation.RECEIVE, str(origin))
    yield Rule(ResourceType.NETWORK, Operation.CONNECT, str(place))


def _without_user(url: str) -> str:
    """Return a URL without who logs in: that is pip's affair, and the host is the same."""
    scheme, mark, rest = url.partition("://")
    authority = _AUTHORITY.match(rest)
    own = authority.group() if authority and mark else ""
    return f"{scheme}{mark}{own.rpartition('@')[2]}{rest[len(own) :]}"


def _index_urls() -> Iterator[str]:
    """Yield what pip's configuration names; without one, pip's own defaults. No pip, no index."""
    try:
        configuration = importlib.import_module("pip._internal.configuration").Configuration
        default = importlib.import_module("pip._internal.models.index").PyPI
    except ImportError:
        return
    settings = configuration(isolated=False)
    settings.load()
    named = {name.rpartition(".")[2]: value.split() for name, value in _values(settings.items())}
    for key in _KEYS:
        yield from named.get(key, ())
    if "index-url" not in named:
        yield from (default.simple_url, f"https://{default.file_storage_domain}")


def _values(items: Iterable[tuple[str, object]]) -> Iterator[tuple[str, str]]:
    """Yield names and values; newer versions of pip group them by the file that they are from."""
    for name, value in items:
        if isinstance(value, dict):
            yield from _values(value.items())
        else:
            yield name, str(value)
