"""Twins of the compiled kernels: the same source, run by Python, with every index looked at.

Owns three grounds on which a kernel can be run. `Strict` arrays, for twins, refuse any index that is not inside, also
those that numpy would count from the end; numbers wrap as the compiled code's do. `Surrounded` arrays, for the compiled
code, lie in the middle of bytes of one kind: what was written outside is seen afterwards, and a result that depends on
what was read outside differs between two kinds. What a kernel should answer is left to the tests.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from isthmus.wire import alike, column_kernels, compiled, kernels, prints, row_kernels

_MARGIN = 64  # bytes or rows on both sides; no hostile length of the tests is needed to stay within


class Kernels(NamedTuple):
    """Modules that hold kernels, compiled or not."""

    kernels: ModuleType
    column_kernels: ModuleType
    row_kernels: ModuleType
    prints: ModuleType
    alike: ModuleType


COMPILED = Kernels(kernels, column_kernels, row_kernels, prints, alike)


def twins(planted: Mapping[str, tuple[str, str]] | None = None) -> Kernels:
    """The modules as Python runs them; `planted`: by module, text of the source and what stands there instead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "njit", lambda *_, **__: lambda function: function)
        loaded = []
        for name in Kernels._fields:  # each finds those before it
            loaded.append(_loaded(name, *(planted or {}).get(name, ("", ""))))
            patch.setitem(sys.modules, f"isthmus.wire.{name}", loaded[-1])
        return Kernels(*loaded)


def _loaded(name: str, old: str, new: str) -> ModuleType:
    known = import_module(f"isthmus.wire.{name}")
    source = Path(known.__file__ or "").read_text()
    assert old in source, f"what was to be replaced in {name} is not there: {old}"
    module = ModuleType(known.__name__)
    module.__file__ = known.__file__
    exec(compile(source.replace(old, new), known.__file__ or "", "exec"), module.__dict__)
    vars(module)["int"] = np.int64  # whose sums wrap, as those of the compiled code do
    return module


class Beyond(AssertionError):
    """An index that is not inside of its array."""


class Strict:
    """An array as kernels use one."""

    def __init__(self, array: Any) -> None:
        self.array = np.array(array)

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return (self[n] for n in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        found = self.array[self._inside(index)]
        return found if np.isscalar(found) else _row(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[self._inside(index)] = value

    def _inside(self, index: Any) -> Any:
        for at, size in zip(index if isinstance(index, tuple) else (index,), self.array.shape, strict=False):
            if not 0 <= at < size:
                raise Beyond(f"{at} of {size}")
        return index

    def content(self) -> Any:
        return self.array.tolist()


def _row(found: Any) -> Strict:
    row = Strict(())
    row.array = found
    return row


class Surrounded:
    """Arrays in the middle of others; `fill`: what surrounds them."""

    def __init__(self, fill: int) -> None:
        self._fill = fill
        self._made: list[tuple[Any, Any]] = []

    def __call__(self, array: Any) -> Any:
        array = np.asarray(array)
        around = np.full((len(array) + 2 * _MARGIN, *array.shape[1:]), self._fill, array.dtype)
        inner = around[_MARGIN : _MARGIN + len(array)]
        inner[:] = array
        self._made.append((around, inner))
        return inner

    def check(self) -> None:
        for around, inner in self._made:
            assert (around[:_MARGIN] == self._fill).all(), "written before the array"
            assert (around[_MARGIN + len(inner) :] == self._fill).all(), "written behind the array"


def plain(found: Any) -> Any:
    """Results of all grounds, to be compared."""
    if isinstance(found, Strict):
        return found.content()
    if isinstance(found, np.ndarray | np.generic):
        return found.tolist()
    if isinstance(found, tuple | list):
        return [plain(each) for each in found]
    return found


Work = Callable[[Kernels, Callable[[Any], Any]], Any]


def alike_everywhere(work: Work, twin: Kernels) -> Any:
    """What `work` answers: by the twin with every index checked, and compiled within two kinds of surroundings."""
    with np.errstate(over="ignore"):
        expected = plain(work(twin, Strict))
    for fill in (0, 0x7F):
        ground = Surrounded(fill)
        found = plain(work(COMPILED, ground))
        ground.check()
        assert found == expected
    return expected
