"""Finds the launcher's own modules without a search, because a cold launch imports two dozen.

The interpreter would look at a dozen things for each of them. This looks at two, the file and what
was compiled of it, and asks the same question: is this compiled from what the file is now? Whatever
it does not find so is left to the interpreter. Only the program `democrai-launch` uses it.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader, spec_from_file_location
from marshal import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import CodeType

_CHECKED_BY_TIME = bytes(4)  # and not by a hash
_WORD = 0xFFFFFFFF


class _Loader(SourceFileLoader):
    """Loads a module of the package, the short way if it can."""

    compiled = ""

    def get_code(self, fullname: str) -> CodeType | None:
        """Return what was compiled of the file, unless the file has changed since."""
        try:
            found = _read(self.compiled)
            status = os.stat(self.path)
        except OSError:
            return super().get_code(fullname)
        age, size = int(status.st_mtime) & _WORD, status.st_size & _WORD
        header = MAGIC_NUMBER + _CHECKED_BY_TIME + _bytes(age) + _bytes(size)
        if not found.startswith(header):
            return super().get_code(fullname)
        code: CodeType = loads(memoryview(found)[len(header) :])  # noqa: S302 - as the interpreter
        return code


class _Finder:
    """Knows where the modules of one package are."""

    def __init__(self, package: str, folder: str) -> None:
        self._package, self._folder = package, folder
        self._ending = f".{sys.implementation.cache_tag}.pyc"

    def find_spec(self, name: str, *_where: object) -> ModuleSpec | None:
        """Say where a module of the package is; nothing about any other."""
        package, _, own = name.rpartition(".")
        if package != self._package:
            return None
        loader = _Loader(name, f"{self._folder}/{own}.py")
        loader.compiled = f"{self._folder}/__pycache__/{own}{self._ending}"
        spec = spec_from_file_location(
            name, loader.path, loader=loader, submodule_search_locations=None
        )
        if spec is not None:
            spec.cached = loader.compiled
        return spec


def use() -> None:
    """Have the package's modules found here, unless they are compiled to another place."""
    if not sys.pycache_prefix and not sys.flags.optimize:
        package = __name__.rpartition(".")[0]
        sys.meta_path.insert(0, _Finder(package, os.path.dirname(__file__)))


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _bytes(number: int) -> bytes:
    return number.to_bytes(4, "little")
