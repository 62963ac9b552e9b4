"""Parts of flows with a transform that need neither Spark nor brokers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.config.load import load
from isthmus.config.written import as_yaml
from isthmus.engine.lane import run_order
from isthmus.engine.orders import Order
from isthmus.engine.wishes import Wishing
from isthmus.errors import BadRecord, ConfigError
from isthmus.frames.carriage import shared
from isthmus.frames.placing import UnknownTopics, placed, rows_of, shares
from isthmus.frames.poison import bad_records
from isthmus.frames.ranges import Range
from isthmus.frames.tickets import Place
from isthmus.mm2.progress import java_partition
from isthmus.model import NO_ID, Flow, TopicPartition, Transform
from isthmus.wire.transaction import Identity

# --- ranges to tasks --------------------------------------------------------------------------

RANGES = st.lists(
    st.builds(
        lambda number, low, size: Range(tp=TopicPartition("t", number), low=low, end=low + size),
        st.integers(0, 5),
        st.integers(0, 50),
        st.integers(1, 50),
    ),
    min_size=1,
)


@given(RANGES, st.integers(1, 8))
def test_a_partition_is_whole_in_one_task_and_in_order(ranges: list[Range], width: int) -> None:
    tasks = shared(ranges, width)
    assert 1 <= len(tasks) <= width
    assert all(tasks)
    for tp in {each.tp for each in ranges}:
        (holder,) = [task for task in tasks if any(each.tp == tp for each in task)]
        assert [each for each in holder if each.tp == tp] == [each for each in ranges if each.tp == tp]


# --- records that a transform fails on --------------------------------------------------------


@given(st.sets(st.integers(0, 99)), st.integers(0, 60), st.integers(1, 40), st.integers(1, 5))
def test_bad_records_are_found_by_halving(bad: set[int], low: int, size: int, most: int) -> None:
    tried = []

    def judge(ranges: Sequence[Range]) -> str:
        (each,) = ranges
        tried.append(each)
        return next((f"bad {at}" for at in range(each.low, each.end) if at in bad), "")

    tp = TopicPartition("t", 0)
    found = bad_records(judge, [Range(tp=tp, low=low, end=low + size)], most)
    there = sorted(at for at in bad if low <= at < low + size)[:most]
    assert found == ({tp: {at: f"bad {at}" for at in there}} if there else {})
    assert len(tried) <= 9 * len(there) + 1


def test_what_fails_only_together_is_no_single_record() -> None:
    whole = Range(tp=TopicPartition("t", 0), low=0, end=9)
    assert bad_records(lambda ranges: "sum" if ranges[0].size > 1 else "", [whole], 9) == {}


# --- rows to partitions -----------------------------------------------------------------------

PLACES = {"a": Place(topic="copy.a", partitions=3), "b": Place(topic="b", partitions=5)}


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    kinds = {"key": pa.binary(), "value": pa.binary(), "headers": header, "timestamp": pa.timestamp("us", "UTC")}
    kinds |= {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
    return pa.RecordBatch.from_arrays(
        [pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()], names=list(kinds)
    )


def row(topic: str | None = "a", partition: int | None = 0, key: bytes | None = None, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "key": key, "timestamp": 1_000_000, "offset": 0, **more}


ROWS = st.lists(
    st.builds(
        row,
        st.sampled_from(["a", "b"]),
        st.none() | st.integers(0, 2),
        st.none() | st.binary(max_size=9),
        offset=st.integers(0, 99),
    ),
    min_size=1,
    max_size=40,
)


@given(ROWS)
def test_each_row_goes_to_one_place_by_name_by_key_or_by_offset(rows: list[dict[str, Any]]) -> None:
    found = {int(at): share for share in shares(batch(rows), PLACES) for at in share.chosen}
    assert sorted(found) == list(range(len(rows)))
    for at, each in enumerate(rows):
        place = PLACES[each["topic"]]
        number = each["partition"]
        if number is None:
            number = (
                each["offset"] % place.partitions
                if each["key"] is None
                else java_partition(each["key"], place.partitions)
            )
        assert found[at].tp == TopicPartition(place.topic, number)
    for share in shares(batch(rows), PLACES):
        assert list(share.chosen) == sorted(share.chosen)
    filled = placed(batch(rows), PLACES, 0, 0)
    assert filled.column("partition").to_pylist() == [found[at].tp.partition for at in range(len(rows))]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (row(partition=3, offset=7), "partition 3 is none of topic copy.a, which has 3"),
        (row(partition=-1, offset=7), "partition -1"),
        (row(topic=None, offset=7), "no topic"),
        (row(timestamp=None, offset=7), "no timestamp"),
    ],
)
def test_a_row_that_can_go_nowhere_is_told(bad: dict[str, Any], told: str) -> None:
    made = batch([row(), bad])
    with pytest.raises(BadRecord, match=told) as error:
        rows_of(made)
        list(shares(made, PLACES))
    assert "source offset 7" in error.value.where


def test_a_topic_without_a_place_is_told_and_left_as_it_is_until_it_has_one() -> None:
    made = batch([row(), row(topic="new")])
    with pytest.raises(UnknownTopics, match="new"):
        list(shares(made, PLACES))
    assert placed(made, PLACES, 0, 0).column("partition") == made.column("partition")


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=5), st.none() | st.binary(max_size=5)), min_size=2, max_size=20)
)
def test_a_slice_of_a_batch_is_read_where_it_lies(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    whole = batch([row(key=key, value=value, headers=[{"key": "h", "value": key}]) for key, value in pairs])
    part = whole.slice(1)
    rows = rows_of(part)
    assert rows.key.count == len(pairs) - 1
    for at, (key, value) in enumerate(pairs[1:]):
        for column, wanted in ((rows.key, key), (rows.value, value)):
            valid = column.valid is None or column.valid[at // 8] >> (at % 8) & 1
            assert (bytes(column.data[column.offsets[at] : column.offsets[at + 1]]) if valid else None) == wanted


# --- in a file --------------------------------------------------------------------------------


def flow_of(folder: Path, **keys: Any) -> Flow:
    file = folder / "flow.yaml"
    clusters = {alias: {"bootstrap": f"{alias}:9092"} for alias in ("east", "west")}
    file.write_text(json.dumps({"clusters": clusters, "flows": [{"from": "east", "to": "west", **keys}]}))
    (flow,) = load(file).flows
    assert load_again(folder, file) == flow
    return flow


def load_again(folder: Path, file: Path) -> Flow:
    """What `config convert` writes means the same."""
    again = folder / "again.yaml"
    again.write_text(as_yaml(load(file)))
    (flow,) = load(again).flows
    return flow


def test_a_text_is_sql_or_the_name_of_a_function(tmp_path: Path) -> None:
    assert flow_of(tmp_path, transform="SELECT * FROM records").transform == Transform(sql="SELECT * FROM records")
    assert flow_of(tmp_path, transform="my.module:mask").transform == Transform(function="my.module:mask")
    assert flow_of(tmp_path).transform is None
    given: dict[str, Any] = {"function": "m:f", "on_error": "dead_letter", "most_records": 10}
    assert flow_of(tmp_path, transform=given).transform == Transform(**given)


def test_lanes_of_a_transform_are_its_tasks(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, transform="m:f", lanes=4)
    assert (flow.lanes, flow.transform and flow.transform.tasks) == (1, 4)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"transform": {"sql": "SELECT 1", "function": "m:f"}}, "either `sql` or `function`"),
        ({"transform": ""}, "either `sql` or `function`"),
        ({"transform": {"sqll": "x"}}, "sqll"),
        ({"transform": {"function": "no function"}}, "function"),
        ({"transform": {"sql": "SELECT 1", "on_error": "skip"}}, "on_error"),
        ({"transform": "m:f", "throttle": 100}, "`throttle` cannot be had together with `transform`"),
        ({"transform": "m:f", "mm2_topics": {"group_offsets": True}}, "group_offsets"),
        ({"transform": "m:f", "mm2_topics": {"checkpoints": True}}, "checkpoints"),
    ],
)
def test_what_cannot_be_meant_is_told(tmp_path: Path, keys: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        flow_of(tmp_path, **keys)


# --- what belongs to copies -------------------------------------------------------------------


def test_a_lane_that_knows_nothing_of_transforms_does_not_carry_over_what_was_to_be_masked(tmp_path: Path) -> None:
    who = Identity("x", 1, 1)
    order = Order(
        order_id="o",
        flow=flow_of(tmp_path, transform="m:f"),
        lane=0,
        driver="d",
        revision=0,
        assignments=(),
        identities=(who, who),
        second_protocol=True,
        progress_id=NO_ID,
        progress_partitions=1,
        dead_letters_id=None,
        topic_rates={},
        control_from=0,
    )
    with pytest.raises(ConfigError, match="copied batch by batch"):
        run_order(order, "attempt")


def test_a_flow_with_a_transform_is_not_throttled_in_silence(tmp_path: Path) -> None:
    flow = flow_of(tmp_path, transform="m:f")
    with pytest.raises(ConfigError, match="cannot be throttled"):
        asyncio.run(_throttled(flow))


async def _throttled(flow: Flow) -> None:
    await Wishing(flow).throttle(1000)
