"""Classes can be found from `object` and changed: what was changed decides nothing."""

from __future__ import annotations

import contextlib
import functools
import socket
import sys
import types
import typing
from typing import TYPE_CHECKING, Any

import pytest
from guard.confined import confined

from democrai_osguard.guard import process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OUTSIDE = "198.51.100.3"  # nobody's: a datagram socket that names its peer sends nothing
INSIDE = "127.0.0.1"
LAST_FIELD = 5  # of the second host that is made when a target is read


def _classes(top: type = object) -> Iterator[type]:
    below: type
    for below in type.__subclasses__(top):
        yield below
        if below is not type:
            yield from _classes(below)


def _sealed(name: str, module: str = "ipaddress") -> Any:  # noqa: ANN401 - a class that nobody should know
    where = f"sealed:{module}"
    return next(
        each for each in _classes() if each.__name__ == name and str(each.__module__) == where
    )


def _another_base() -> None:
    network = _sealed("IPv4Network")
    first, second = network.__bases__
    network.__bases__ = (first, type("Wide", (second,), {"subnet_of": lambda *_: True}))


def _a_base_of_a_base() -> None:
    network = _sealed("_BaseNetwork")
    old = network.__bases__[0]
    network.__bases__ = (type("Wide", (old,), {"__slots__": (), "__str__": lambda _: INSIDE}),)


def _a_descriptor_of_the_library() -> None:
    functools.cached_property.__get__ = lambda *_: 0  # type: ignore[method-assign, assignment]


def _a_variable_that_is_shared() -> None:
    def put(host: object, name: str, value: object) -> None:
        object.__setattr__(host, name, {"name": "localhost", "network": None}.get(name, value))

    found = {"__setattr__": staticmethod(put)}
    for host in {each for each in _classes() if each.__name__ == "Host"}:
        for cell in vars(host)["__init__"].__closure__ or ():
            if cell.cell_contents is object:
                cell.cell_contents = type("Setting", (), found)


def _one_that_puts_itself_right() -> None:
    """Exchanged while a target is read, and as it was when anybody looks afterwards."""
    hosts = {each for each in _classes() if each.__name__ == "Host"}
    cells = [cell for host in hosts for cell in vars(host)["__init__"].__closure__ or ()]
    found = [cell for cell in cells if cell.cell_contents is object]
    times = iter(range(100))

    def put(host: object, name: str, value: object) -> None:
        object.__setattr__(host, name, {"name": "localhost", "network": None}.get(name, value))
        if next(times) == LAST_FIELD:
            for cell in found:
                cell.cell_contents = object

    for cell in found:
        cell.cell_contents = type("Setting", (), {"__setattr__": staticmethod(put)})


def _a_global_of_one_function() -> None:
    new = _sealed("Grant", "democrai_osguard.policy.chain").__new__
    new.__globals__["_tuple_new"] = lambda *_: ()


def _a_name_in_the_library() -> None:
    made_up = types.SimpleNamespace(__lt__=lambda address, _: str(address).endswith(".0"))
    functools.type = lambda _: made_up  # type: ignore[attr-defined]


def _a_public_base() -> None:
    typing.Generic.__bool__ = lambda _: True  # type: ignore[attr-defined]


def _reached(address: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect((address, 9))
        except OSError as error:
            return str(getattr(error, "code", "reached"))
    return "reached"


ATTACKS: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "another base": _another_base,
    "a base of a base": _a_base_of_a_base,
    "a descriptor of the library": _a_descriptor_of_the_library,
    "a variable that is shared": _a_variable_that_is_shared,
    "one that puts itself right": _one_that_puts_itself_right,
    "a global of one function": _a_global_of_one_function,
    "a name in the library": _a_name_in_the_library,
    "a public base": _a_public_base,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_changed_class_does_not_widen_the_network(attack: str) -> None:
    def check() -> object:
        with process_guard_context("m", "module", allowed_targets=["localhost"]):
            before = _reached(INSIDE)
            ATTACKS[attack]()
            return [before, _reached(OUTSIDE)]

    assert confined(check) == ["reached", "sandbox_network_denied"]


def test_a_change_that_says_nothing_yet_closes() -> None:
    def check() -> object:
        with process_guard_context("m", "module", allowed_targets=["localhost:9"]):
            _a_public_base()
            return _reached(INSIDE)

    assert confined(check) == "sandbox_network_denied"


def test_no_public_code_runs_where_guards_are_kept() -> None:
    """A class of the library that the sealed part called would see it from inside."""

    def check() -> object:
        seen: list[str] = []
        before = contextlib.suppress.__exit__

        def spy(*args: object) -> object:
            seen.append(str(sys._getframe(1).f_globals["__name__"]))  # noqa: SLF001 - what an attack does
            return before(*args)  # type: ignore[arg-type]

        with process_guard_context("m", "module"):
            contextlib.suppress.__exit__ = spy  # type: ignore[assignment, method-assign]
        with contextlib.suppress(KeyError):
            pass
        return [name for name in seen if name.startswith("sealed:")], bool(seen)

    assert confined(check) == [[], True]
