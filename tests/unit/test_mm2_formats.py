"""MirrorMaker 2's internal records, byte for byte, and the names of their topics."""

from __future__ import annotations

import dataclasses

import pytest

from isthmus.mm2.formats import Checkpoint, Heartbeat, OffsetSync, checkpoints_topic, offset_syncs_topic
from isthmus.model import Cluster, Flow, Mm2Topics, Naming

# As the Java classes write them.
VECTORS = [
    (OffsetSync("t1", 3, 1000, 900), "0002743100000003", "00000000000003e80000000000000384"),
    (
        Checkpoint("g1", "us.t1", 3, 1000, 900),
        "00026731000575732e743100000003",
        "000000000000000003e800000000000003840000",
    ),
    (Heartbeat("us", "eu", 1_700_000_000_000), "0002757300026575", "00000000018bcfe56800"),
]
FLOW = Flow(source=Cluster(alias="us", bootstrap=("a:1",)), target=Cluster(alias="eu", bootstrap=("b:1",)))


@pytest.mark.parametrize(("record", "key", "value"), VECTORS)
def test_a_record_is_written_and_read_as_java_does(
    record: Heartbeat | OffsetSync | Checkpoint, key: str, value: str
) -> None:
    assert record.encode() == (bytes.fromhex(key), bytes.fromhex(value))
    assert type(record).decode(bytes.fromhex(key), bytes.fromhex(value)) == record


@pytest.mark.parametrize(("record", "key", "value"), VECTORS)
def test_damaged_bytes_are_told_from_a_record(
    record: Heartbeat | OffsetSync | Checkpoint, key: str, value: str
) -> None:
    whole_key, whole_value = bytes.fromhex(key), bytes.fromhex(value)
    for end in range(len(whole_key)):
        assert type(record).decode(whole_key[:end], whole_value) is None
    for end in range(len(whole_value)):
        assert type(record).decode(whole_key, whole_value[:end]) is None
    assert type(record).decode(b"\xff\xff" + whole_key[2:], whole_value) is None
    assert type(record).decode(b"\0\2\xff\xff" + whole_key[4:], whole_value) is None


def test_names_of_any_language_survive() -> None:
    beat = Heartbeat("größe", "東", 1)
    assert Heartbeat.decode(*beat.encode()) == beat


def test_internal_topics_are_named_as_mirrormaker_names_them() -> None:
    assert offset_syncs_topic(FLOW) == "mm2-offset-syncs.eu.internal"
    assert checkpoints_topic(FLOW) == "us.checkpoints.internal"
    on_target = dataclasses.replace(FLOW, mm2_topics=Mm2Topics(offset_syncs_on="target"))
    assert offset_syncs_topic(on_target) == "mm2-offset-syncs.us.internal"


def test_a_separator_of_ones_own_counts_for_internal_topics_too_unless_they_have_another() -> None:
    flow = dataclasses.replace(FLOW, naming=Naming(separator="_"))
    assert offset_syncs_topic(flow) == "mm2-offset-syncs_eu_internal"
    assert checkpoints_topic(flow) == "us_checkpoints_internal"
    flow = dataclasses.replace(FLOW, naming=Naming(separator="_", internal_separator="."))
    assert checkpoints_topic(flow) == "us.checkpoints.internal"
