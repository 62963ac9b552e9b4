"""What the driver tells of its lanes: each of their notes once, however often a report brings it again."""

from __future__ import annotations

from typing import Any

from isthmus.engine.orders import Order
from isthmus.engine.scene import Scene
from isthmus.model import NO_ID, Cluster, Flow
from isthmus.wire.transaction import Identity

FLOW = Flow(source=Cluster(alias="east", bootstrap=("e:1",)), target=Cluster(alias="west", bootstrap=("w:1",)), lanes=2)


def _order(name: str, lane: int) -> Order:
    return Order(
        order_id=name,
        flow=FLOW,
        lane=lane,
        driver="d",
        revision=0,
        assignments=(),
        identities=(Identity("a", 1, 0), Identity("b", 2, 0)),
        second_protocol=True,
        progress_id=NO_ID,
        progress_partitions=1,
        dead_letters_id=None,
        topic_rates={},
        control_from=0,
    )


def _report(order: str, noted: int, *notes: str) -> dict[str, Any]:
    counts = dict.fromkeys(("records", "bytes", "transactions", "dead_letters"), 0)
    return {"order": order, "host": "h", "pid": 1, "positions": [], "stops": [], **counts} | {
        "noted": noted,
        "notes": list(notes),
    }


def _told(scene: Scene) -> list[str]:
    return [event.partition(" ")[2] for event in scene.show("running").events]


def test_a_lanes_note_is_told_once_however_many_reports_bring_it() -> None:
    scene = Scene(FLOW, lambda _: None)
    for lane in (0, 1):
        scene.lane_started(_order(f"o{lane}", lane))
    for _ in range(5):
        for lane in (0, 1):
            assert scene.lane_reported(lane, _report(f"o{lane}", 3, "first", "second", "third"))
    assert scene.lane_reported(0, _report("o0", 5, "second", "third", "fourth", "fifth"))
    assert scene.lane_reported(0, _report("o0", 5, "second", "third", "fourth", "fifth"))
    assert _told(scene) == [
        *(f"lane {lane}: {note}" for lane in (0, 1) for note in ("first", "second", "third")),
        "lane 0: fourth",
        "lane 0: fifth",
    ]


def test_the_notes_of_a_new_order_are_told_from_its_first_on() -> None:
    scene = Scene(FLOW, lambda _: None)
    for order in ("one", "two"):
        scene.lane_started(_order(order, 0))
        assert scene.lane_reported(0, _report(order, 1, f"begin of {order}"))
    assert scene.lane_reported(0, _report("one", 2, "late", "later"))
    assert _told(scene) == ["lane 0: begin of one", "lane 0: begin of two"]


def test_a_report_that_counts_its_notes_in_words_is_not_believed() -> None:
    scene = Scene(FLOW, lambda _: None)
    scene.lane_started(_order("one", 0))
    assert not scene.lane_reported(0, _report("one", 1, "x") | {"noted": "many"})
