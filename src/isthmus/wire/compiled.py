"""numba's compiler, with a cache that also executors of a Spark cluster find again.

They get this package as a zip, at another path for every executor. numba keeps what it compiled by that path, so each
executor that starts, also one that takes the place of one that was lost, would compile all kernels anew: most of a
minute on one core. Here the path inside of the zip counts; numba itself sees to it that the source and the processor
are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numba import njit
from numba.core import caching

__all__ = ["njit"]

_ZIP = "isthmus.zip"
_KNOWN: Any = getattr(caching, "ZipCacheLocator", None)  # where it is missing, all is as numba does it

if _KNOWN is not None:

    class _Shipped(_KNOWN):  # type: ignore[misc]
        """The place of compiled kernels of a package that was shipped as a zip."""

        @classmethod
        def get_suitable_cache_subpath(cls, py_file: str) -> str:
            return f"isthmus_{Path(py_file).stem}"

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            return cls(py_func, py_file) if _ZIP in Path(py_file).parts else None

    caching.CacheImpl._locator_classes.insert(0, _Shipped)
