"""Frozen records without the price of `typing` or `dataclasses`, which cost as much as a fork.

At run time this is a tuple with named fields; to the type checker it is `typing.NamedTuple`.
"""

# ruff: noqa: ANN001, ANN002, ANN003, ANN204, D102 - the type checker sees another class

from __future__ import annotations

__all__ = ["Record"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:
    from _collections import _tuplegetter  # what reads the fields of `collections.namedtuple`

    class Record(tuple):
        """A tuple whose annotated fields are its items, in order; a default may follow a field."""

        __slots__ = ()

        def __init_subclass__(cls) -> None:
            cls._fields = tuple(cls.__annotations__)
            cls._field_defaults = {
                name: vars(cls)[name] for name in cls._fields if name in vars(cls)
            }
            for place, name in enumerate(cls._fields):
                setattr(cls, name, _tuplegetter(place, None))

        def __new__(cls, *values, **named):
            if len(values) == len(cls._fields) and not named:
                return tuple.__new__(cls, values)
            rest = cls._fields[len(values) :]
            given = {**cls._field_defaults, **named}
            if len(values) > len(cls._fields) or not named.keys() <= set(rest):
                raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}")
            return tuple.__new__(cls, (*values, *(given[name] for name in rest)))

        def __eq__(self, other):
            return type(self) is type(other) and tuple.__eq__(self, other)

        def __ne__(self, other):
            return not self == other

        def __hash__(self):
            return hash((type(self), *self))

        def __repr__(self):
            fields = ", ".join(
                f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)
            )
            return f"{type(self).__name__}({fields})"
