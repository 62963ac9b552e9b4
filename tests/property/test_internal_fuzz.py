"""Records of internal topics, which others may write to: any bytes are read as what they are, or passed over."""

from __future__ import annotations

import json
import struct
import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus.engine import control, register, wishes
from isthmus.engine.history import History
from isthmus.engine.ledger import _usable_cuts
from isthmus.engine.offsets import runs
from isthmus.engine.orders import Stop
from isthmus.engine.pictured import Scenery, pictured
from isthmus.engine.resolve import record as resolve
from isthmus.engine.switch import FROZEN, Place, Switch, switch_of
from isthmus.errors import TargetError
from isthmus.mm2.formats import Checkpoint, Heartbeat, OffsetSync
from isthmus.mm2.progress import parse_progress, progress_key, progress_value
from isthmus.model import NO_ID, Cluster, Flow, TopicPartition
from isthmus.observe.health import ClusterHealth
from isthmus.wire.records import Record, varint

fuzz = settings(deadline=None, max_examples=150)
TP = TopicPartition("a.topic", 3)
DEEP = b"[" * 100_000
HALF = b'["c",{"cluster":"\\ud800","partition":0,"topic":"t"}]'  # half of a pair of surrogates
keys = st.text(max_size=6)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
GOOD = [
    Heartbeat("east", "west", 5).encode(),
    OffsetSync("orders", 3, 7, 8).encode(),
    Checkpoint("group", "orders", 3, 7, 8, "möre").encode(),
    (progress_key("c", "east", "t", 0), progress_value(5, "mark", "5@30")),
    (runs.encode_key(TP, 5), runs.encode_value(runs.Span(TP, 5, 99, runs.table([[6, 0, 3], [20, 9, 1]])))),
    control.encode("stop/t/0", {"code": "GAP", "lost": [1, 2], "foreign": [[1, 2]]}),
    (b"id/5", b'{"flow":"f","source":"s"}'),
]
EDITS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3), st.binary(max_size=3)), max_size=3)


@st.composite
def records(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A good one with some bytes changed in key or value; or anything."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.binary(max_size=40)), draw(st.binary(max_size=40) | jsons.map(lambda x: json.dumps(x).encode()))
    key, value = draw(st.sampled_from(GOOD))
    return _changed(key, draw(EDITS)), _changed(value or b"", draw(EDITS))


def _changed(raw: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for at, gone, new in edits:
        at %= len(raw) + 1
        raw = raw[:at] + new + raw[at + gone :]
    return raw


@fuzz
@given(pair=records())
@example((HALF, b'{"offset":1}'))
@example((DEEP, DEEP))
@example((b'["c",{"cluster":"a","partition":99999999999,"topic":"t"}]', b"{}"))
def test_any_record_is_one_of_mirrormakers_or_none(pair: tuple[bytes, bytes]) -> None:
    for kind in (Heartbeat, OffsetSync, Checkpoint):
        found = kind.decode(*pair)
        assert found is None or found.encode()[0] == pair[0]
    position = parse_progress(*pair)
    assert parse_progress(pair[0], None) is None or position is None or position.partition < 2**31
    assert position is None or position.offset is None or 0 <= position.offset < 2**63


# --- the index of runs ---------------------------------------------------------------------------


@st.composite
def spans(draw: st.DrawFn) -> bytes:
    some = st.integers(-3, 9) | st.sampled_from([2**31, 2**62, 2**63 - 1, -(2**63)])
    listed = draw(st.lists(some, max_size=9))
    head = [draw(some | st.integers(0, 99)), draw(st.just(len(listed) // 3) | some)]
    return b"\1" + b"".join(map(varint, head + listed)) + draw(st.just(b"") | st.binary(max_size=2))


@fuzz
@given(value=spans() | records().map(lambda x: x[1]), start=st.sampled_from([0, 5, 2**62, 2**63 - 1]))
def test_any_value_is_a_span_whose_runs_rise_inside_of_it_or_none(value: bytes, start: int) -> None:
    end, span = runs.decode_end(start, value), runs.decode_value(TP, start, value)
    assert end is None or start <= end < 2**63
    if span is None:
        return
    assert (span.start, span.end) == (start, end)
    reached = start
    for source, target, length in span.runs.tolist():
        assert source >= reached
        assert length > 0
        assert target >= 0
        reached = source + length
    assert reached <= span.end
    again = runs.decode_value(TP, start, runs.encode_value(span))
    assert again is not None
    assert np.array_equal(again.runs, span.runs)


@fuzz
@given(key=st.binary(max_size=30) | records().map(lambda x: x[0]))
@example(struct.pack(">h", 1) + b"t" + struct.pack(">iq", -1, 0))
@example(struct.pack(">h", 1) + b"t" + struct.pack(">iq", 0, -1))
def test_any_key_of_the_index_is_a_place_or_none(key: bytes) -> None:
    found = runs.decode_key(key)
    assert found is None or (found[0].partition >= 0 and found[1] >= 0)


# --- control topic and register ------------------------------------------------------------------


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, 1, key, value)


@fuzz
@given(pair=records(), is_null=st.booleans())
@example((b"lease", DEEP), False)
@example((b"lease", b"9" * 5000), False)
@example((b"\xff", b"{}"), False)
def test_any_control_record_is_a_value_or_passed_over(pair: tuple[bytes, bytes], is_null: bool) -> None:
    view = control.ControlView()
    view.apply(record(pair[0], None if is_null else pair[1]))
    view.apply(record(None, pair[1]))
    assert all(isinstance(each, dict) for each in view.values.values())
    assert "" not in view.values


def test_a_damaged_control_record_leaves_what_was_known() -> None:
    view = control.ControlView()
    view.apply(record(*control.encode("lease", {"driver": "x"})))
    for damaged in (DEEP, b"", b"5", b"null", b"[]", b"{", b"\xff"):
        view.apply(record(b"lease", damaged))
    assert view.values == {"lease": {"driver": "x"}}


ID = uuid.UUID(int=5)
FLOW = Flow(source=Cluster(alias="a", bootstrap=("a:1",)), target=Cluster(alias="b", bootstrap=("b:1",)))
SCENERY = Scenery(
    source=ClusterHealth(alias="a", answers=True),
    target=ClusterHealth(alias="b", answers=True),
    ends={TP: 5},
    stored={},
    is_there=True,
    is_driven=True,
    now_ms=5_000,
    host="h",
)
LASTING = {
    "switch": Switch(
        phase=FROZEN, kind="failover", decided_ms=5, by="me", places={TP: Place(1, 2)}, steps=(("freeze", 3),)
    ).as_value(),
    "fleet": {"lanes": 3},
    "topic/a": {"source_id": str(NO_ID), "target": "x.a", "target_id": str(NO_ID), "starts": {"0": 5}},
    "register": {"source": str(NO_ID), "target": str(NO_ID)},
    "stop/a/0": resolve.stop_value(Stop(source=TP, code="GAP", message="m", hint="h", lost=(1, 2)), 5.0),
    "gap/a/0/1": {"code": "GAP", "at": 5.0, "first": 1, "past": 2, "foreign": [[1, 2]]},
    "decision/a/0/skip/1": {"choice": "skip", "at": 5.0, "first": 1, "past": 2, "foreign": []},
    "wish/pause": {"flow": False, "topics": ["a"]},
}
PASSING = {
    "lease": {"driver": "d", "count": 1, "since": 5, "host": "h", "pid": 7, "released": False},
    "status/0": {
        "driver": "d",
        "order": "o",
        "positions": [["a", 0, 1, 2]],
        "records": 5,
        "age": {"counts": [1], "sum": 2},
    },
    "driver": {
        "driver": "d",
        "lanes": [{"state": "s", "epochs": 1}],
        "events": ["e"],
        "groups": {"at": 1.0, "states": {}},
    },
    "wish/throttle": {"rate": 5, "topics": {"a": 5}},
    "snapshot": {"topic_id": str(ID), "cuts": {"0": 1}, "positions": [["a", 0, 1]], "marks": [["a", 0, "m"]]},
}


@st.composite
def bent(draw: st.DrawFn) -> tuple[str, bytes]:
    """A good record with anything in the place of one of its fields, at any depth, or without it."""
    key = draw(st.sampled_from([*LASTING, *PASSING]))
    value = json.loads(json.dumps((LASTING | PASSING)[key]))
    place, at = value, draw(st.sampled_from(list(value)))
    while isinstance(place[at], list | dict) and place[at] and draw(st.booleans()):
        place = place[at]
        at = draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
    if draw(st.booleans()):
        place[at] = draw(jsons)
    else:
        del place[at]
    return key, json.dumps(value).encode()


@fuzz
@given(damaged=bent())
def test_a_control_record_is_sound_for_all_its_readers_or_a_start_is_refused(damaged: tuple[str, bytes]) -> None:
    seen = History()
    key, value = damaged
    seen.feed([record(b"lease", json.dumps(PASSING["lease"]).encode()), record(key.encode(), value)])
    view = seen.view
    for read in (switch_of, resolve.stops, resolve.gaps, resolve.decisions, wishes.paused, wishes.throttled_topics):
        read(view)
    pictured(FLOW, seen, SCENERY)
    _usable_cuts(view.values.get("snapshot"), ID, {0: 0})
    is_lasting = key in LASTING
    assert (key in view.damaged) == (is_lasting and key not in view.values)
    if view.damaged:
        with pytest.raises(TargetError) as refused:
            control.refuse_damaged(FLOW, view)
        assert refused.value.code == "CONTROL_DAMAGED"
    view.apply(record(key.encode(), None))  # a person took it away
    control.refuse_damaged(FLOW, view)


@pytest.mark.parametrize("key", [*LASTING, *PASSING])
def test_a_good_control_record_is_taken_as_it_is(key: str) -> None:
    view = control.ControlView()
    good = (LASTING | PASSING)[key]
    view.apply(record(key.encode(), json.dumps(good).encode()))
    assert view.values == {key: json.loads(json.dumps(good))}
    assert not view.damaged


@fuzz
@given(key=st.sampled_from(["stop/", "gap/", "decision/"]), rest=st.text("a/0²٣1", max_size=6))
def test_keys_that_name_no_partition_are_passed_over(key: str, rest: str) -> None:
    view = control.ControlView()
    view.values[f"{key}{rest}"] = {}
    for found in (*resolve.stops(view), *(each.source for each in resolve.gaps(view))):
        assert found.partition >= 0


class _Followed(register.Register):
    """Fed by hand."""

    def __init__(self) -> None:
        self.origins: dict[int, Any] = {}
        self.empty: set[str] = set()


@fuzz
@given(pair=records(), number=st.text("0123²٣-_ ", max_size=5))
@example((b"id/5", DEEP), "1")
@example((b"id/" + b"9" * 5000, b"{}"), "1")
def test_any_record_of_the_register_is_an_origin_or_passed_over(pair: tuple[bytes, bytes], number: str) -> None:
    followed = _Followed()
    followed._apply(record(*pair))
    followed._apply(record(f"id/{number}".encode(), pair[1]))
    assert all(isinstance(each, register.Origin) for each in followed.origins.values())
