"""Kernels that were compiled on an executor are found again by the next one, wherever its zip lies; those of the same
package that is installed there are taken, and those of another one are not.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from numba.core import caching

import isthmus
from isthmus.engine.spark import _package
from isthmus.wire import kernels
from isthmus.wire.compiled import _twin_of

PACKAGE = Path(isthmus.__file__).parent


def _place(file: str) -> str:
    for kind in caching.CacheImpl._locator_classes:
        if (found := kind.from_function(vars(kernels)["read_int"].py_func, file)) is not None:
            return str(found.get_cache_path())
    raise AssertionError("no place for it")


def test_a_package_that_was_shipped_as_a_zip_is_known_by_the_path_inside_of_it() -> None:
    one, other = (f"/spark/app-{n}/{n}/isthmus.zip/isthmus/wire/kernels.py" for n in (1, 2))
    assert _place(one) == _place(other)
    assert _place(one) != _place(one.replace("kernels", "prints"))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place where this package is installed, beside the zip that comes first."""
    place = tmp_path / "site"
    shutil.copytree(PACKAGE, place / "isthmus", ignore=shutil.ignore_patterns("__pycache__"))
    archive = _package(tmp_path)
    monkeypatch.setattr(sys, "path", [str(archive), str(place)])
    _twin_of.cache_clear()
    return place


def test_the_kernels_of_the_same_package_that_is_installed_are_taken(installed: Path) -> None:
    shipped = str(installed.parent / "isthmus.zip" / "isthmus" / "wire" / "kernels.py")
    assert _place(shipped) == str(installed / "isthmus" / "wire" / "__pycache__")


def test_the_kernels_of_another_version_that_is_installed_are_not(installed: Path) -> None:
    shipped = str(installed.parent / "isthmus.zip" / "isthmus" / "wire" / "kernels.py")
    with (installed / "isthmus" / "wire" / "column_kernels.py").open("a") as other:
        other.write("# another version\n")
    assert str(installed) not in _place(shipped)


def test_a_package_that_is_installed_keeps_its_kernels_beside_it() -> None:
    assert _place(kernels.__file__).endswith("__pycache__")
