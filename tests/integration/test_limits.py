"""Other codecs, batches that are too large for the target, and a throttle."""

from __future__ import annotations

import os
import time

import pytest
from tests.crossing import Crossing, cross, flow_between
from tests.integration.sources import CODECS, KEPT, numbered, stored, unique, write

from isthmus.lab import Lab
from isthmus.lab.oracle import compare

pytestmark = pytest.mark.integration


def _equal(lab: Lab, alias: str, topic: str) -> None:
    verdict = compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, f"{alias}.{topic}")
    assert verdict.equal, verdict.first_difference


def test_records_are_recompressed_to_the_codec_that_the_flow_asks_for(lab: Lab) -> None:
    topic = unique("topic-")
    lab["east"].create_topic(topic, 1, configs=KEPT)
    for each in CODECS:
        write(lab["east"].bootstrap, topic, numbered(40, headers=[("h", b"x")]), compression_type=each)
    aliases = {codec: unique(codec) for codec in CODECS}
    for codec, alias in aliases.items():
        cross(flow_between(lab, topic, alias=alias, compression=codec))
        _equal(lab, alias, topic)
    found = stored(lab["west"], *(f"{alias}.{topic}" for alias in aliases.values()))
    for codec, alias in aliases.items():
        batches = found[f"{alias}.{topic}"]
        assert {batch.codec for batch in batches if not batch.is_control} == {codec}


def test_a_batch_that_is_too_large_for_the_target_is_split(lab: Lab) -> None:
    alias, topic, other = unique("split"), unique("topic-"), unique("other-")
    lab["east"].create_topic(topic, 1, configs=KEPT)
    lab["east"].create_topic(other, 1, configs=KEPT)
    lab["west"].create_topic(f"{alias}.{topic}", 1, configs=KEPT | {"max.message.bytes": "3000"})
    rows = [{"value": os.urandom(700)} for _ in range(64)]
    write(lab["east"].bootstrap, topic, rows, linger_ms=500)
    write(lab["east"].bootstrap, other, numbered(10))
    status = cross(flow_between(lab, topic, other, alias=alias))
    assert not status.stopped
    _equal(lab, alias, topic)


def test_a_single_record_that_is_too_large_stops_its_partition_and_names_the_setting(lab: Lab) -> None:
    alias, topic, other = unique("large"), unique("topic-"), unique("other-")
    lab["east"].create_topic(topic, 1, configs=KEPT)
    lab["east"].create_topic(other, 1, configs=KEPT)
    lab["west"].create_topic(f"{alias}.{topic}", 1, configs=KEPT | {"max.message.bytes": "3000"})
    write(lab["east"].bootstrap, topic, [{"value": b"a"}, {"value": os.urandom(5000)}, {"value": b"b"}], linger_ms=500)
    write(lab["east"].bootstrap, other, numbered(10))
    status = cross(flow_between(lab, topic, other, alias=alias))
    (stop,) = status.stopped
    assert stop.topic == topic
    assert "MESSAGE_TOO_LARGE" in stop.error
    _equal(lab, alias, other)


def test_a_throttle_holds_bytes_per_second(lab: Lab) -> None:
    alias, topic = unique("slow"), unique("topic-")
    lab["east"].create_topic(topic, 2, configs=KEPT)
    rows = [{"value": os.urandom(10_000), "partition": n % 2} for n in range(300)]  # 3 MB
    write(lab["east"].bootstrap, topic, rows)
    began = time.monotonic()
    with Crossing(flow_between(lab, topic, alias=alias, throttle=500_000)) as crossing:
        crossing.until_copied(300)
    assert time.monotonic() - began > 4.5  # 6 s at the rate, less what the last request may hold
    _equal(lab, alias, topic)
