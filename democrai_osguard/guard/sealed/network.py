"""Network acts: which place is reached, by which operation, and what a name resolved to.

An HTTP call opens its own connection under its `receive` or `send` rule: for its duration it
holds a pass for exactly that host and port. A raw socket needs `connect`.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock
from contextvars import ContextVar
from typing import Any

from democrai_osguard.guard.sealed.answers import ASK, about_path, consult, refusal, remember
from democrai_osguard.guard.sealed.core import MISSING, State, current, text_of
from democrai_osguard.guard.sealed.integrity import intact
from democrai_osguard.guard.sealed.opening import as_refusal
from democrai_osguard.guard.sealed.paths import absolute, resolve
from democrai_osguard.targets.network import NetworkTarget, parse_network

AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
SOCK_RAW = 3
_INTERNET = (AF_INET, AF_INET6)
_FAMILIES = (AF_UNIX, AF_INET, AF_INET6)
_KIND = 0xF  # the type of a socket without its flags
_HOST_AND_PORT = 2  # how long an address is; one of IPv6 may say more
_NETWORK = "network"
_EXACT = frozenset({str, bytes, int})
_ROOM = 4096

_CHANGED = "the classes that decide were changed"
ORIGINALS: dict[str, Any] = {}
_PASS: ContextVar[Any] = ContextVar("democrai_osguard_http")
# What each pass is for, and the pass around it.
_ENDPOINTS: dict[LockType, tuple[str, int | None, Any]] = {}


def about_network(state: State, operation: str, text: str) -> Warning | None:
    """Return None where the act on a network target is allowed, else the refusal."""
    key = _NETWORK, operation, text
    known = state.answers.get(key, MISSING)
    if known is not MISSING:
        return known  # type: ignore[no-any-return] # what was stored below
    code = "sandbox_network_denied"
    if not intact():
        return refusal(state, code, operation, text, _CHANGED)
    try:
        target = parse_network(text)
    except ValueError as error:
        return refusal(state, "invalid_target", operation, text, str(error))
    declared = _declared(state, operation, target)
    if ASK:
        answer = consult(state, _NETWORK, operation, str(target), declared=declared, code=code)
    else:
        answer = None if declared else refusal(state, code, operation, str(target))
    return remember(state, key, answer)


def _read(text: str) -> NetworkTarget:
    """Read a target; raise ValueError where a class was changed, which reads what it likes.

    Looked at before, not only after: what was changed could put itself right meanwhile.
    """
    if not intact():
        raise ValueError(_CHANGED)
    return parse_network(text)


def _declared(state: State, operation: str, target: NetworkTarget) -> bool:
    if state.network is None:
        return False
    texts = [str(target), *_by_name(state, target)]
    return any(state.network(operation, text) for text in texts) and intact()


def _by_name(state: State, target: NetworkTarget) -> list[str]:
    """Return an address under each name that this process's own look-up gave it."""
    names = state.names.get(str(target.host), ())
    texts = []
    for name in names:
        scheme = "" if target.scheme is None else f"{target.scheme}://"
        port = "" if target.port is None else f":{target.port}"
        path = "".join(f"/{part}" for part in target.path)
        texts.append(f"{scheme}{name}{port}{path}")
    return texts


def connect(family: int, address: Any) -> Warning | None:
    """Judge a socket that is about to reach an address."""
    state = current()
    if state is None or was_reached(state, family, address):
        return None
    if type(family) is not int:
        return refusal(state, "sandbox_network_denied", "connect", "an odd family")
    try:
        return about_address(state, family, address)
    except Warning as error:
        return as_refusal(error, state)


def about_address(state: State, family: int, address: Any) -> Warning | None:
    """Judge an address of any family."""
    if family == AF_UNIX:
        return _about_unix(state, address)
    if family not in _INTERNET or not _is_plain(address):
        return refusal(state, "sandbox_network_denied", "connect", f"family {family}, oddly")
    return _about_endpoint(state, address)


def was_reached(state: State, family: int, address: Any) -> bool:
    """Tell whether exactly this host and port was judged, and allowed, in this activation."""
    return (
        type(family) is int
        and family in _INTERNET
        and type(address) is tuple
        and len(address) == _HOST_AND_PORT
        and type(address[0]) is str
        and type(address[1]) is int
        and address in state.reached
    )


def _is_plain(address: Any) -> bool:
    """Tell whether an address is host and port; another object could equal whatever is allowed."""
    if type(address) is not tuple or len(address) < _HOST_AND_PORT:
        return False
    for item in address:
        if type(item) not in _EXACT:
            return False
    return type(address[1]) is int


def _about_endpoint(state: State, address: tuple[Any, ...]) -> Warning | None:
    host, port = _text(address[0]), address[1]
    odd = _about_text(state, host)
    if odd is not None:
        return odd
    if _has_pass(state, host, port):
        return None
    answer = about_network(state, "connect", endpoint(host, port))
    if answer is None:
        _may_be_looked_up(state, host)
        _may_be_looked_up(state, _plain_host(host))
        if len(state.reached) > _ROOM:
            state.reached.clear()
        state.reached[address] = True
    return answer


def _about_text(state: State, host: str) -> Warning | None:
    """Refuse a host to dial that is none, or that C code would look up as another one."""
    if not host:
        return refusal(state, "invalid_target", "connect", host, "no host is named")
    return _about_script(state, host)


def _about_script(state: State, host: str) -> Warning | None:
    # The interpreter's own codec is of another standard than rules: it has another host for some.
    if host.isascii():
        return None
    why = "its name is not written in ASCII, and would be looked up as another"
    return refusal(state, "sandbox_network_denied", "connect", host, why)


def endpoint(host: str, port: int) -> str:
    """Return host and port as a target."""
    bare = host.partition("%")[0]
    if not bare:
        bare = "localhost"
    bracketed = f"[{bare}]" if ":" in bare and not bare.startswith("[") else bare
    return f"{bracketed}:{port}" if port > 0 else bracketed


def _about_unix(state: State, address: Any) -> Warning | None:
    text = text_of(address)
    if not text or text.startswith("\0"):
        name = (text or "").lstrip("\0")
        return refusal(state, "sandbox_network_denied", "connect", f"unix:@{name}")
    return about_path(state, "modify", resolve(absolute(text)))


def lookup(state: State, host: Any) -> Warning | None:
    """Judge the look-up of a name, which is a message to whoever answers for it."""
    host = text_of(host) or ""
    if host in state.places:
        return None
    odd = _about_script(state, host)
    if odd is not None:
        return odd
    name = _plain_host(host) if host else ""
    if not name or name == "localhost" or name in state.places or _is_address(name):
        _may_be_looked_up(state, host)
        return None
    if any(place == name for place, _ in _passes()):
        return None
    if state.hosts is not None and intact() and state.hosts(name) and intact():
        _may_be_looked_up(state, host)
        return None
    return about_network(state, "connect", name)


def reverse(state: State, host: Any) -> Warning | None:
    """Judge the look-up of whom an address belongs to, which tells the address to strangers."""
    name = _plain_host(_text(host))
    if name == "localhost" or not _is_address(name):
        return lookup(state, host)
    return about_network(state, "connect", endpoint(name, 0))


def _may_be_looked_up(state: State, host: str) -> None:
    if len(state.places) > _ROOM:
        state.places.clear()
    state.places[host] = True


def look_up(verb: str, values: list[Any], named: dict[str, Any]) -> object:
    """Look a name up, and remember what it resolved to: nobody else says what that is."""
    plain = type(values) is list and type(named) is dict and type(verb) is str
    if not plain or not _are_plain(values) or not _are_plain(list(named.values())):
        raise TypeError("a name is looked up by plain values")
    found = ORIGINALS[verb](*values, **named)
    state = current()
    host = values[0]
    if state is not None and host is not None:
        _looked_up(state, _text(host), _addresses(verb, found))
    return found


def _are_plain(values: list[Any]) -> bool:
    return all(value is None or type(value) in _EXACT for value in values)


def _addresses(verb: str, found: Any) -> list[str]:
    if verb == "getaddrinfo":
        return [item[4][0] for item in found if len(item[4]) > 1]
    return [found] if verb == "gethostbyname" else list(found[2])


def _looked_up(state: State, host: str, addresses: list[str]) -> None:
    if not host or host in addresses:
        return
    name = _plain_host(host)
    if name and not _is_address(name):
        for address in addresses:
            _name(state, _plain_host(address), name)


def _name(state: State, address: str, name: str) -> None:
    names = state.names.get(address, frozenset())
    if name not in names:
        state.names[address] = names | {name}
        # What was refused about the address before may be covered by its name now.
        for key, answer in state.answers.copy().items():
            if answer is not None and key[0] == _NETWORK:
                state.answers.pop(key, None)


def http_begin(operations: tuple[str, ...], url: str, through: str | None) -> object:
    """Judge one HTTP exchange; return a pass for its connection, None without a guard.

    Of several operations one is enough: a websocket is opened to read or to write. A proxy that
    the exchange goes through is a connection like any other, beside the place that is asked for.
    """
    state = current()
    if state is None:
        return None
    url = _text(url)
    answers = [about_network(state, _text(operation), url) for operation in _tuple(operations)]
    if all(answer is not None for answer in answers):
        return answers[0]
    if through is None:
        return _pass(*_place(url))
    answer = about_network(state, "connect", _text(through))
    return _pass(*_place(_text(through))) if answer is None else answer


def http_end(handle: Any) -> None:
    """Take a pass back."""
    record = _ENDPOINTS.pop(handle, None) if type(handle) is LockType else None
    if record is not None and _PASS.get(None) is handle:
        _PASS.set(record[2])


def http_endpoint(scheme: str, host: str, port: int) -> object:
    """Judge a connection that the HTTP layer opens before it knows what it will ask."""
    state = current()
    if state is None:
        return None
    scheme, host = _text(scheme), _text(host)
    if type(port) is not int:
        raise TypeError("a port is a plain number")
    if not host:
        return refusal(state, "invalid_target", "connect", host, "no host is named")
    if _has_pass(state, host, port) or (
        state.http is not None and intact() and state.http(scheme, endpoint(host, port))
    ):
        return _pass(*_place(endpoint(host, port)))
    return about_network(state, "connect", endpoint(host, port))


def _pass(host: str, port: int | None) -> LockType:
    """Return a pass for one host and port, inside the one that is held already."""
    handle = allocate_lock()
    _ENDPOINTS[handle] = host, port, _PASS.get(None)
    _PASS.set(handle)
    return handle


def _passes() -> list[tuple[str, int | None]]:
    """Return the places that the running HTTP calls may connect to."""
    found = []
    handle = _PASS.get(None)
    while type(handle) is LockType and handle in _ENDPOINTS:
        host, port, handle = _ENDPOINTS[handle]
        found.append((host, port))
    return found


def message(operation: str, url: str) -> Warning | None:
    """Judge one message on a connection that is already open."""
    state = current()
    return None if state is None else about_network(state, _text(operation), _text(url))


def _has_pass(state: State, host: str, port: int) -> bool:
    name = _plain_host(host)
    hosts = {name, *state.names.get(name, ())}
    return any(place in hosts and known == port for place, known in _passes())


def _place(text: str) -> tuple[str, int | None]:
    target = _read(text)
    return str(target.host), target.port


def _plain_host(host: str) -> str:
    try:
        return str(_read(endpoint(host, 0)).host)
    except ValueError:
        return host


def _is_address(name: str) -> bool:
    return ":" in name or name.rpartition(".")[2].isdigit()


def _tuple(values: Any) -> tuple[Any, ...]:
    return values if type(values) is tuple else ()


def _text(host: Any) -> str:
    return text_of(host) or ""


def new_socket(state: State, kind: Any, family: int, type_: int, raw: type) -> Warning | None:
    """Judge the making of a socket: its family, and whether it passes by the Python class."""
    if type(kind) is raw:
        return refusal(state, "sandbox_network_denied", "connect", "a socket of the C class")
    if family == -1 or (family in _FAMILIES and type_ & _KIND != SOCK_RAW):
        return None
    return refusal(state, "sandbox_network_denied", "connect", f"family {family} type {type_}")


def bind(state: State, family: int, address: Any) -> Warning | None:
    """Judge where a socket listens: only a name in the file system is a right of its own."""
    text = text_of(address) if family == AF_UNIX else None
    if not text or text.startswith("\0"):
        return None
    return about_path(state, "create", resolve(absolute(text), follow=False))


def binding(family: int, address: Any) -> Warning | None:
    """Judge the name of a place to listen at, before it is looked up."""
    state = current()
    if state is None or type(family) is not int or family not in _INTERNET:
        return None
    if not _is_plain(address):
        return refusal(state, "sandbox_network_denied", "connect", f"family {family}, oddly")
    return lookup(state, address[0])
