"""numba's compiler, with a cache that also executors of a Spark cluster find again.

They get this package as a zip, at another path for every executor. numba keeps what it compiled by that path, so each
executor that starts, also one that takes the place of one that was lost, would compile all kernels anew: most of a
minute on one core. Where the very same package is installed, too, as images have it, the kernels that lie beside that
one are taken. Elsewhere the path inside of the zip counts. What must stay true: what was compiled from another source
is never used; numba looks at a kernel's own file, and we at all of `wire`, because kernels call each other.
"""

from __future__ import annotations

import functools
import sys
import zipfile
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import caching

__all__ = ["njit"]

_ZIP = "isthmus.zip"
_KNOWN: Any = getattr(caching, "ZipCacheLocator", None)  # where it is missing, all is as numba does it


@functools.cache
def _twin_of(archive: str) -> Path | None:
    """The folder that holds the same package, installed."""
    with zipfile.ZipFile(archive) as shipped:
        sources = {
            name: shipped.read(name)
            for name in shipped.namelist()
            if name.startswith("isthmus/wire/") and name.endswith(".py")
        }
    for entry in map(Path, sys.path):
        if entry.name != _ZIP and sources and all(_is(entry / name, text) for name, text in sources.items()):
            return entry
    return None


def _is(file: Path, text: bytes) -> bool:
    try:
        return file.read_bytes() == text
    except OSError:
        return False


if _KNOWN is not None:

    class _Shipped(_KNOWN):  # type: ignore[misc]
        """The place of compiled kernels of a package that was shipped as a zip."""

        @classmethod
        def get_suitable_cache_subpath(cls, py_file: str) -> str:
            return f"isthmus_{Path(py_file).stem}"

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            if _ZIP not in Path(py_file).parts:
                return None
            own = cls(py_func, py_file)
            return own.beside_the_twin(py_func) or own

        def beside_the_twin(self, py_func: Any) -> Any:
            try:
                twin = _twin_of(self._zip_path)
            except (OSError, zipfile.BadZipFile):
                return None
            # None as well where that folder cannot be written to.
            return twin and caching.InTreeCacheLocator.from_function(py_func, str(twin / self._internal_path))

    caching.CacheImpl._locator_classes.insert(0, _Shipped)
