"""What a record of the control topic has to look like to be read: field by field, for each kind of key.

Whoever may write there can write anything, and so can another version of us. What must stay true: what is sound here is
read by everybody without a further look; fields that nobody knows are let be. Reports of lanes are large and many: not
all of them is looked at, and whoever reads them passes damaged ones over. What a damaged record leads to is left to
`control`.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Shape = Callable[[Any], bool]
PHASES = ("draining", "frozen", "switched", "returning", "returned")  # of a change of sides; see `switch`


def _whole(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _number(value: Any) -> bool:
    return _whole(value) or (type(value) is float and math.isfinite(value))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _id(value: Any) -> bool:
    try:
        uuid.UUID(value)
    except (TypeError, ValueError, AttributeError):
        return False
    return True


def _maybe(shape: Shape) -> Shape:
    return lambda value: value is None or shape(value)


def _several(shape: Shape) -> Shape:
    return lambda value: isinstance(value, list) and all(map(shape, value))


def _row(*shapes: Shape) -> Shape:
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(shapes)
        and all(shape(each) for shape, each in zip(shapes, value, strict=True))
    )


def _by_name(shape: Shape) -> Shape:
    return lambda value: isinstance(value, dict) and all(map(shape, value.values()))


def _by_number(shape: Shape) -> Shape:
    return lambda value: _by_name(shape)(value) and all(map(_is_number, value))


def _record(known: Mapping[str, Shape]) -> Shape:
    return lambda value: isinstance(value, dict) and all(shape(value[n]) for n, shape in known.items() if n in value)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _positions(value: Any) -> bool:
    """Of a lane's report: thousands of rows, each second."""
    if type(value) is not list:
        return False
    try:
        return all(
            type(topic) is str and type(partition) is int and type(position) is int and type(end) is int
            for topic, partition, position, end in value
        )
    except (TypeError, ValueError):
        return False


def _place(value: Any) -> bool:
    """Of a partition at a freeze: its number, both offsets, and what may be known besides."""
    return isinstance(value, list) and 3 <= len(value) <= 5 and all(map(_whole, value))


class _Form(NamedTuple):
    known: Mapping[str, Shape]
    needed: tuple[str, ...] = ()
    ends_in_number: bool = False  # the key does

    def fits(self, value: dict[str, Any]) -> bool:
        return all(name in value for name in self.needed) and _record(self.known)(value)


_DRIVER: dict[str, Shape] = {"driver": _text, "host": _text, "pid": _whole}
_COUNTS = dict.fromkeys(("records", "bytes", "transactions", "aborts", "dead_letters", "noted"), _whole)
_RANGES = _several(_row(_whole, _whole))
_POSITION = _row(_text, _whole, _whole)
_MARK = _row(_text, _whole, _text)
_LANE = _record({"epochs": _whole, "failures": _whole})
_GROUPS = _record({"at": _number, "seconds": _number, "groups": _whole, "states": _by_name(_whole)})
_ERROR = _record({"code": _text, "message": _text})
_FACT = {"at": _number, "first": _whole, "past": _whole, "foreign": _RANGES}
_FORMS = {
    "lease": _Form(_DRIVER | {"count": _whole, "since": _whole, "released": _flag}),
    "fleet": _Form({"lanes": _whole}, ("lanes",)),
    "want/": _Form(
        {"driver": _text, "state": _text, "revision": _whole, "aside": _several(_text)}, ends_in_number=True
    ),
    "status/": _Form(_DRIVER | {"order": _text, "positions": _positions} | _COUNTS, ends_in_number=True),
    "alive/": _Form({"driver": _text, "order": _text}, ends_in_number=True),
    "driver": _Form(
        {
            "driver": _text,
            "error": _maybe(_ERROR),
            "events": _several(_text),
            "groups": _maybe(_GROUPS),
            "lanes": _several(_LANE),
        }
    ),
    "topic/": _Form(
        {"source_id": _id, "target": _text, "target_id": _id, "starts": _by_number(_whole)},
        ("source_id", "target", "target_id"),
    ),
    "register": _Form({"source": _id, "target": _id}),
    "stop/": _Form({"lost": _maybe(_row(_whole, _whole)), "foreign": _maybe(_RANGES)}),
    "gap/": _Form(_FACT),
    "decision/": _Form(_FACT),
    "wish/pause": _Form({"flow": _flag, "topics": _several(_text)}),
    "wish/throttle": _Form({"rate": _whole, "topics": _by_name(_maybe(_whole))}),
    "switch": _Form(
        {
            "phase": lambda value: value in PHASES,
            "kind": _text,
            "decided_ms": _whole,
            "by": _text,
            "places": _by_name(_several(_place)),
            "steps": _several(_row(_text, _whole)),
            "never_crossed": _text,
            "fenced": _flag,
            "heard_ms": _whole,
        },
        ("phase", "kind", "decided_ms", "by"),
    ),
    "snapshot": _Form(
        {
            "topic_id": _id,
            "cuts": _by_number(_whole),
            "positions": _several(_POSITION),
            "marks": _several(_MARK),
            "epochs": _several(_MARK),
        },
        ("topic_id", "cuts", "positions"),
    ),
}


def is_sound(key: str, value: dict[str, Any]) -> bool:
    """Whether this value can be read as what its key says; a key that nobody knows is nobody's."""
    head, slash, rest = key.partition("/")
    form = _FORMS.get(key) or _FORMS.get(head + slash)
    if form is None:
        return True
    return form.fits(value) and (not form.ends_in_number or _is_number(rest))
