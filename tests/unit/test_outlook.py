"""What a look says of a flow, from control records as lanes, drivers and operators write them; no broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from isthmus.cli.health import flow_view
from isthmus.cli.positions import choose_flows
from isthmus.engine.history import History
from isthmus.engine.pictured import Scenery, pictured
from isthmus.engine.signs import Pulse
from isthmus.mm2.formats import Heartbeat
from isthmus.model import Cluster, Flow, TopicPartition, Topics
from isthmus.observe.health import ClusterHealth, FlowHealth
from isthmus.observe.metrics import Looked, metrics_text
from isthmus.observe.window import Verdict
from isthmus.wire.cluster import Client
from isthmus.wire.records import Record

NOW = 1_700_000_000_000
FLOW = Flow(
    source=Cluster(alias="east", bootstrap=("e:1",)),
    target=Cluster(alias="west", bootstrap=("w:1",)),
    topics=Topics(include=("orders",)),
    lanes=1,
)
ORDERS = TopicPartition("orders", 0)
LEASE = {"driver": "d1", "count": 7, "host": "here", "pid": 42, "released": False}
STOP = {"code": "GAP", "message": "offsets 5 to 9 were removed", "hint": "resolve it"}
GAP = {"code": "GAP", "at": 1.0, "first": 5, "past": 10}
SWITCH = {"phase": "switched", "kind": "failover", "decided_ms": 1, "by": "me"}


class Topic:
    """A control topic, written by hand."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._read = 0
        self.history = History()

    def write(self, key: str, value: dict[str, Any] | None, ago_s: float = 0.0) -> Topic:
        body = None if value is None else json.dumps(value).encode()
        self._records.append(Record(len(self._records), NOW - int(ago_s * 1000), key.encode(), body))
        return self

    def lane(self, position: int, end: int, ago_s: float, **more: Any) -> Topic:
        value = {"driver": "d1", "order": "o1", "host": "there", "pid": 9, "positions": [["orders", 0, position, end]]}
        return self.write("status/0", value | more, ago_s)

    def look(
        self, *, driven: bool = True, end: int | None = None, stored: int = -1, there: bool = True, alive: bool = True
    ) -> FlowHealth:
        self.history.feed(self._records[self._read :])
        self._read = len(self._records)
        scenery = Scenery(
            source=ClusterHealth(alias="east", answers=alive, code="" if alive else "UNREACHABLE"),
            target=ClusterHealth(alias="west", answers=True),
            ends={} if end is None else {ORDERS: end},
            stored={} if stored < 0 else {ORDERS: stored},
            is_there=there,
            is_driven=driven,
            now_ms=NOW,
            host="here",
        )
        return pictured(FLOW, self.history, scenery)


def running(*, position: int = 100, end: int = 100) -> Topic:
    return Topic().write("lease", LEASE, 1).lane(position, end, 30).lane(position, end, 1)


@pytest.mark.parametrize(
    ("topic", "look", "state", "code", "status"),
    [
        (Topic(), {"there": False, "driven": False}, "never ran", "NOT_RUNNING", 5),
        (running(), {}, "running", "", 0),
        (running().write("wish/pause", {"flow": True}), {}, "paused", "PAUSED", 5),
        (running().write("wish/pause", {"topics": ["other"]}), {}, "running", "", 0),
        (running().write("lease", LEASE | {"released": True}), {"driven": False}, "not running", "NOT_RUNNING", 5),
        (running(), {"driven": False}, "no driver", "NO_DRIVER", 5),
        (running().write("switch", SWITCH), {"driven": False}, "failed over", "FAILED_OVER", 8),
        (running().write("switch", SWITCH | {"phase": "frozen"}), {}, "changing sides", "FAILED_OVER", 8),
        (running(), {"alive": False}, "running", "UNREACHABLE", 6),
        (running().write("stop/orders/0", STOP), {}, "running", "GAP", 9),
        (running(position=50), {}, "running", "STALLED", 4),
    ],
)
def test_states_causes_and_exit_statuses(
    topic: Topic, look: dict[str, Any], state: str, code: str, status: int
) -> None:
    found = topic.look(**look)
    assert (found.state, found.cause.code, found.cause.exit_code) == (state, code, status)


def test_topics_that_are_paused_do_not_make_the_others_less_well() -> None:
    topic = running().write("wish/pause", {"topics": ["orders"]})
    assert topic.look().verdict is Verdict.paused
    topic.write("status/1", {"driver": "d1", "order": "o", "positions": [["clicks", 0, 5, 5]]})
    assert topic.look().verdict is Verdict.ok


def test_a_stop_and_its_gap_are_told() -> None:
    found = running().write("stop/orders/0", STOP).write("gap/orders/0/5", GAP).look()
    (partition,) = found.partitions
    assert (partition.verdict, partition.code, partition.hint) == (Verdict.stopped, "GAP", "resolve it")
    assert (found.lost, found.gaps[0].what) == (5, "offsets 5 to 9 of orders-0")


def test_lag_is_told_in_offsets_bytes_and_seconds() -> None:
    topic = Topic().write("lease", LEASE, 1)
    for second in range(40, 0, -1):
        topic.lane(0, 1000 - 25 * second, second, records=10, bytes=1000)
    (partition,) = topic.look(end=1000).partitions
    assert (partition.lag, partition.lag_bytes) == (1000, 100_000)
    assert (partition.lag_seconds, partition.lag_seconds_at_least) == (39.0, False)
    assert partition.verdict is Verdict.stalled


def test_rates_and_totals_go_on_over_orders() -> None:
    topic = Topic().write("lease", LEASE, 1)
    topic.lane(0, 0, 15, records=1000, bytes=10_000).lane(0, 0, 8, records=1500, bytes=15_000)
    topic.lane(0, 0, 4, order="o2", records=500, bytes=5_000)
    found = topic.look()
    assert (found.totals.records, found.totals.bytes) == (2000, 20_000)
    assert (found.records_per_s, found.bytes_per_s) == (100.0, 1000.0)


def test_reports_before_the_window_are_not_read_but_for_the_last() -> None:
    topic = Topic().write("lease", LEASE, 1)
    for ago in (4000, 3000, 2000):
        topic.lane(50, 50, ago, records=ago)
    found = topic.lane(60, 60, 5, records=5000).look()
    assert found.totals.records == 5000
    assert len(topic.history.samples(ORDERS)) == 2


def test_where_nobody_drives_what_was_committed_counts() -> None:
    found = running(position=90).look(driven=False, stored=95, end=100)
    (partition,) = found.partitions
    assert (partition.position, partition.lag, partition.verdict) == (95, 5, Verdict.stalled)


def test_ends_that_a_lane_does_not_see_are_remembered_by_those_who_look_again() -> None:
    topic = running()
    topic.look()
    assert topic.history.unseen(NOW, {ORDERS: 150}) == {ORDERS: 150}
    assert not topic.history.heard_of({ORDERS: 150})
    topic.history.note_ends(NOW - 11_000, {ORDERS: 150})
    topic.lane(100, 100, 0)  # the lane lives, and says that there is nothing
    assert topic.look(end=150).partitions[0].lag == 50


@pytest.mark.parametrize(("order", "verdict"), [("o1", Verdict.ok), ("o0", Verdict.stalled)])
def test_a_lane_that_lives_and_has_nothing_to_report_is_not_taken_for_a_silent_one(
    order: str, verdict: Verdict
) -> None:
    topic = Topic().write("lease", LEASE, 1).lane(100, 100, 50).write("alive/0", {"driver": "d1", "order": order}, 5)
    assert topic.look(end=105).partitions[0].verdict is verdict


def test_only_what_the_present_driver_and_its_lanes_say_counts() -> None:
    said = {"driver": "d0", "lanes": [{"state": "recovering", "error": "old"}], "events": ["old"]}
    found = running().write("status/5", {"driver": "d0", "positions": [["gone", 0, 1, 9]]}).write("driver", said).look()
    assert [lane.lane for lane in found.lanes] == [0]
    assert [each.topic for each in found.partitions] == ["orders"]
    assert found.events == ()


def test_what_a_driver_ended_of_is_told() -> None:
    said = {"driver": "d1", "lanes": [{"state": "ended", "epochs": 3}], "error": {"code": "FENCE", "message": "why"}}
    found = running().write("driver", said).write("lease", LEASE | {"released": True}).look(driven=False)
    assert (found.code, found.error) == ("FENCE", "why")
    assert (found.lanes[0].epochs, found.lanes[0].host) == (3, "there")


def test_latencies_are_added_up_and_told_as_bounds() -> None:
    ages = {"counts": [0, 8, 0, 2, *[0] * 12], "sum": 150}
    found = running().lane(100, 100, 0, latency=ages).look()
    assert found.latency.quantile_ms(0.5) == 10
    assert found.latency.quantile_ms(0.99) == 50
    assert found.record_age.quantile_ms(0.5) is None


def test_json_is_plain_and_has_the_sums() -> None:
    told = json.loads(json.dumps(running(position=50).look().as_json()))
    assert (told["verdict"], told["cause"], told["exit_status"], told["lag"]) == ("stalled", "STALLED", 4, 50)
    assert told["counts"] == {"stalled": 1}


def test_json_has_the_fields_of_its_page_and_no_others() -> None:
    page = (Path(__file__).parents[2] / "docs" / "json-output.md").read_text()
    section = page.partition("## `isthmus status FILE -o json`")[2]
    (told,) = json.loads(section.partition("```json")[2].partition("```")[0])
    real = json.loads(json.dumps(running().look().as_json()))
    assert set(told) == set(real)
    for name in ("source", "groups", "totals", "latency"):
        assert set(told[name]) == set(real[name])
    for name in ("partitions", "lanes"):
        assert set(told[name][0]) == set(real[name][0])


def test_text_says_the_verdict_first_and_then_only_what_needs_attention() -> None:
    def shown(found: FlowHealth, everything: bool = False) -> str:
        console = Console(width=160, record=True, file=None, quiet=False, force_terminal=False, no_color=True)
        with console.capture() as caught:
            console.print(flow_view(found, everything))
        return caught.get()

    fine = running().look()
    driver = "process 42 on here (this machine) as replicator-east"
    assert shown(fine).startswith(f"east->west ok: driven by {driver}; partitions: 1 ok")
    assert "orders" not in shown(fine)
    assert "orders" in shown(fine, everything=True)
    ill = shown(running().write("stop/orders/0", STOP).look())
    assert ill.startswith("east->west stopped [GAP]: ")
    assert "orders-0 [GAP] offsets 5 to 9 were removed. resolve it" in ill


def test_metrics_can_be_read_by_prometheus_and_leave_out_what_is_not_known() -> None:
    found = running().write("stop/orders/0", STOP).write("gap/orders/0/5", GAP).look()
    text = metrics_text(Looked(flows=[found], lost=[("a->b", "b")]))
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    values = {sample.name: sample.value for sample in samples}
    assert values["isthmus_lost_offsets"] == 5.0
    assert values["isthmus_gaps_open"] == 1.0
    assert values["isthmus_partition_verdict"] == Verdict.stopped.rank
    assert "isthmus_group_sync_age_seconds" not in values
    stopped = next(sample for sample in samples if sample.name == "isthmus_partition_stopped")
    assert stopped.labels == {"flow": "east->west", "topic": "orders", "partition": "0", "code": "GAP"}
    up = {(s.labels["flow"], s.labels["side"]): s.value for s in samples if s.name == "isthmus_up"}
    assert up == {("east->west", "source"): 1.0, ("east->west", "target"): 1.0, ("a->b", "target"): 0.0}


def test_a_flow_is_also_known_by_the_name_that_kafka_cloud_replicator_gives_it() -> None:
    found = running().look()
    console = Console(width=200)
    with console.capture() as caught:
        console.print(flow_view(found, False))
    assert "driven by process 42 on here (this machine) as replicator-east" in caught.get()
    assert found.as_json()["replicator"] == "replicator-east"
    assert choose_flows((FLOW,), "replicator-east", changing=True) == [FLOW]


BEATS = [(1, ("other", "west", 50)), (2, ("east", "west", 70)), (3, ("west", "east", 90))]


def beat(offset: int, source: str, target: str, at_ms: int) -> Record:
    return Record(offset, at_ms, *Heartbeat(source, target, at_ms).encode())


@pytest.mark.parametrize(
    ("heard", "last_ms"),
    [
        ([BEATS], 70),
        ([BEATS[:1]], 50),  # at least as old as the oldest that was read
        ([BEATS[:1], BEATS[1:]], 70),
        ([BEATS, [(4, ("other", "west", 99))]], 70),
        ([[]], None),
    ],
)
def test_the_last_heartbeat_is_that_of_this_flow(heard: list[Any], last_ms: int | None) -> None:
    pulse = Pulse(FLOW, Client(FLOW.target))
    for look in heard:
        pulse._hear([beat(offset, *told) for offset, told in look] + [Record(9, 9, b"?", b"?")])
    assert pulse._last_ms == last_ms
