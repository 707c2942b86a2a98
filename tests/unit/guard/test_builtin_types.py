"""Types that are made in C where a guard is installed: shown as copies, and useful as before."""

from __future__ import annotations

import abc
import copy
import functools
import inspect
import pickle
import threading
import types
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pytest
from guard.confined import confined

from democrai_osguard.guard import install, process_guard_context

if TYPE_CHECKING:
    from collections.abc import Callable


def _installed(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test where a guard is installed: in a fork, since it cannot be taken out again."""

    @functools.wraps(test)
    def run(*args: object, **named: object) -> None:
        def check() -> None:
            install()
            test(*args, **named)

        confined(check)

    return run


class _Plain:
    def __init__(self) -> None:
        self.value = 1


class _Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 2


class _Abstract(abc.ABC):
    @abc.abstractmethod
    def act(self) -> None: ...


@runtime_checkable
class _Named(Protocol):
    real: int


class _Taker:
    """Keeps what it is compared with."""

    taken: Any = None

    def __eq__(self, other: object) -> bool:
        self.taken = other
        return True

    __hash__ = None  # type: ignore[assignment] # it is equal to all


def _taken(space: object) -> dict[str, Any]:
    taker = _Taker()
    assert space == taker
    assert type(taker.taken) is dict
    return taker.taken


@pytest.mark.parametrize("kind", [str, dict, object, type, types.FrameType, type(threading.Lock())])
@_installed
def test_a_namespace_that_is_handed_out_is_a_copy(kind: type) -> None:
    taken = _taken(kind.__dict__)
    taken["lab_mark"] = 1
    assert not hasattr(kind, "lab_mark")
    assert set(taken) - {"lab_mark"} == set(vars(kind))


@_installed
def test_a_namespace_of_a_class_made_in_python_is_the_one_that_changes() -> None:
    kind: Any = type("Changing", (), {})
    space = kind.__dict__
    kind.late = 1
    assert space["late"] == 1
    assert type(space) is types.MappingProxyType


@_installed
def test_a_namespace_cannot_be_replaced() -> None:
    with pytest.raises(AttributeError, match="not writable"):
        _Plain.__dict__ = {}  # type: ignore[misc,assignment] # that is the question


@_installed
def test_attributes_are_found_statically() -> None:
    assert inspect.getattr_static(int, "mro") is vars(type)["mro"]
    assert inspect.getattr_static(_Plain(), "value") == 1
    assert inspect.getattr_static(_Slotted, "value") is vars(_Slotted)["value"]
    assert isinstance(3, _Named)
    assert not isinstance("3", _Named)


@pytest.mark.parametrize("made", [_Plain(), _Slotted()])
@_installed
def test_objects_are_copied_and_pickled(made: _Plain | _Slotted) -> None:
    assert copy.copy(made).value == made.value
    assert pickle.loads(pickle.dumps(made)).value == made.value  # noqa: S301 - our own
    assert made.__getstate__() == object.__getstate__(made)
    ours: object = type(made).__getstate__
    assert ours is object.__getstate__


@pytest.mark.parametrize("how", [copy.copy, pickle.dumps])
@_installed
def test_what_has_no_state_is_still_neither_copied_nor_pickled(
    how: Callable[[object], object],
) -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        how(threading.Lock())
    with pytest.raises(TypeError, match="cannot pickle"):
        how(_ for _ in ())


@_installed
def test_slots_without_a_state_are_refused_by_old_protocols() -> None:
    with pytest.raises(TypeError, match="__slots__"):
        pickle.dumps(_Slotted(), 0)


@_installed
def test_nothing_has_a_state_of_its_own() -> None:
    assert None.__getstate__() is None
    assert None.__reduce_ex__(4)[1] == (type(None),)


@_installed
def test_abstract_classes_are_still_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        _Abstract()  # type: ignore[abstract] # that is the question


def test_what_guarded_code_changes_there_is_put_right_when_its_guard_is_left() -> None:
    def check() -> object:
        with process_guard_context("m", "module"):
            for kind in object.__subclasses__():
                if kind.__name__ == "__dict__":
                    kind.__get__ = lambda *_args: {}  # type: ignore[attr-defined]
            changed = "join" not in vars(str)
        return changed, "join" in vars(str)

    assert confined(check) == [True, True]
