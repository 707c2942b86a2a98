"""Programs written once, and given the maps of each sandbox: writing one takes longer than that.

Pure. A template is a program for maps that do not exist; where it names one is known by place.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Final

from .bpf_assembly import LOAD_MAP
from .bpf_keys import Maps

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZE: Final = 8  # of an instruction, in bytes
_VALUE_AT: Final = 4
# No process has descriptors as high as these.
_NOWHERE: Final = Maps(0x7FFFFF00, 0x7FFFFF01, 0x7FFFFF02, 0x7FFFFF03, 0x7FFFFF04)


def program_for(build: Callable[[Maps], bytes], maps: Maps) -> bytes:
    """Return what `build(maps)` returns, without building it again."""
    code, places = _template(build)
    given = (maps.allowed, maps.denied, maps.listeners, maps.flows, maps.home)
    made = bytearray(code)
    for place, which in places:
        struct.pack_into("<i", made, place, given[which])
    return bytes(made)


@functools.cache
def _template(build: Callable[[Maps], bytes]) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    code = build(_NOWHERE)
    places = []
    for start in range(0, len(code), _SIZE):
        if code[start] == LOAD_MAP:
            (value,) = struct.unpack_from("<i", code, start + _VALUE_AT)
            places.append((start + _VALUE_AT, value - _NOWHERE.allowed))
    return code, tuple(places)
