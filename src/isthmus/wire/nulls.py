"""Lists that are null in an answer although the protocol forbids it.

The decoder takes null for any list, and whoever goes through it would fail far from the broker that sent it. What must
stay true: lists alone are judged, because brokers of other makers are known to leave out texts; what may be null by
Apache's schemas passes. Fields that come with tags have defaults, and are left alone.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple


class _List(NamedTuple):
    """One field: a list, or (`is_list` not) a structure that holds some."""

    name: str
    is_list: bool
    may_be_null: bool
    inner: tuple[_List, ...]


def refuse_nulls(kind: Any, version: int, answer: Any) -> None:
    """ValueError that names the first."""
    _look(_lists_of(kind, version), answer)


def _look(lists: tuple[_List, ...], holder: Any) -> None:
    for each in lists:
        value = getattr(holder, each.name)
        if value is None:
            if each.may_be_null:
                continue
            raise ValueError(f"`{each.name}` is null")
        for inner in (value if each.is_list else (value,)) if each.inner else ():
            _look(each.inner, inner)


@functools.cache
def _lists_of(kind: Any, version: int) -> tuple[_List, ...]:
    return _among(kind.fields.values(), version)


def _among(fields: Any, version: int) -> tuple[_List, ...]:
    found = (
        _read(each, version) for each in fields if each.for_version_q(version) and not each.tagged_field_q(version)
    )
    return tuple(each for each in found if each.is_list or each.inner)


def _read(field: Any, version: int) -> _List:
    is_nested = field.is_struct() or field.is_struct_array()
    return _List(
        name=field.name,
        is_list=field.is_array(),
        may_be_null=not field.is_array() or field.nullable_for_version_q(version),
        inner=_among(field.fields.values(), version) if is_nested else (),
    )
