"""Kernels that were compiled on an executor are found again by the next one, wherever its zip lies."""

from __future__ import annotations

from numba.core import caching

from isthmus.wire import kernels


def _place(file: str) -> str:
    for kind in caching.CacheImpl._locator_classes:
        if (found := kind.from_function(vars(kernels)["read_int"].py_func, file)) is not None:
            return str(found.get_cache_path())
    raise AssertionError("no place for it")


def test_a_package_that_was_shipped_as_a_zip_is_known_by_the_path_inside_of_it() -> None:
    one, other = (f"/spark/app-{n}/{n}/isthmus.zip/isthmus/wire/kernels.py" for n in (1, 2))
    assert _place(one) == _place(other)
    assert _place(one) != _place(one.replace("kernels", "prints"))


def test_a_package_that_is_installed_keeps_its_kernels_beside_it() -> None:
    assert _place(kernels.__file__).endswith("__pycache__")
