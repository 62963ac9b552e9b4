"""Flows that keep topic names and lead back: every record is on each side once, and none goes round.

What arrived is judged by librdkafka. Both directions under load, through kills, restarts and new producer ids, are in
`tests/faults/test_twins.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crossing import QUICK, RECORDS_ONLY, Crossing, InThread, cross
from tests.integration.sources import (
    KEPT,
    codes,
    forget_clients,
    numbered,
    partition_count,
    read,
    stored,
    values,
    wait_until,
    write,
)
from tests.integration.twins import twins

from isthmus.config.load import load
from isthmus.dr.carrying import on_spark
from isthmus.dr.failback import fail_back
from isthmus.dr.failover import fail_over
from isthmus.dr.values import FAILOVER, Options
from isthmus.engine import lease
from isthmus.engine.driver import Driver
from isthmus.errors import LoopError, RivalError
from isthmus.lab import ClusterSpec, Lab, LabCluster
from isthmus.model import REGISTER, Flow, Naming, Start, Sync, Topics
from isthmus.observe.status import FlowStatus

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Clusters of their own: flows of other tests, which keep names one way only, would be refused beside these."""
    with Lab([ClusterSpec(name=name) for name in ("east", "west", "far")]) as clusters:
        yield clusters
    forget_clients()


def flows_of(lab: Lab, folder: Path, topic: str, *ends: str) -> list[Flow]:
    """By a file, which finds out by itself what is to be cut."""
    lines = ["clusters:", *(f"  {name}: {{bootstrap: '{lab[name].bootstrap}'}}" for name in lab.clusters), "flows:"]
    for pair in ends:
        source, target = pair.split("->")
        lines.append(f"  - {{from: {source}, to: {target}, naming: identity, topics: {topic}}}")
    file = folder / "flows.yaml"
    file.write_text("\n".join(lines))
    changes: dict[str, Any] = {"tuning": QUICK, "mm2_topics": RECORDS_ONLY, "sync": Sync(configs=False)}
    return [dataclasses.replace(flow, **changes) for flow in load(file).flows]


def is_free(target: LabCluster, flow: Flow) -> bool:
    """Whether the flow's last driver has released its lease."""
    values = [value or b"" for _, key, value in read(target.bootstrap, flow.control_topic) if key == b"lease"]
    return bool(json.loads(values[-1])["released"])


async def all_cross(flows: list[Flow]) -> list[FlowStatus]:
    return await asyncio.gather(*(Driver(flow, InThread(), until_caught_up=True).run() for flow in flows))


def test_a_chain_carries_everything_to_its_end(lab: Lab, tmp_path: Path, topic_name: str) -> None:
    """First of all: no flow back may have been here, or a chain that does not cut is refused."""
    first, second = flows_of(lab, tmp_path, topic_name, "east->west", "west->far")
    lab["east"].create_topic(topic_name, configs=KEPT)
    write(lab["east"].bootstrap, topic_name, numbered(10))
    assert cross(first).records == 10
    write(lab["west"].bootstrap, topic_name, numbered(5, first=10))
    assert cross(second).records == 15
    assert values(lab["far"].bootstrap, topic_name) == [b"v%d" % n for n in range(15)]


def test_a_flow_that_does_not_know_of_the_way_back_is_refused_and_ended(
    lab: Lab, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab["east"].create_topic(topic_name, configs=KEPT)
    write(lab["east"].bootstrap, topic_name, numbered(10))
    there, back = twins(lab, topic_name, "east", "far")
    careless = dataclasses.replace(there, cut_from=())
    with Crossing(careless) as running:
        running.until_copied(10)
        write(lab["far"].bootstrap, topic_name, numbered(5, first=10))
        assert cross(back).records == 5
        wait_until(lambda: running.error is not None, "the careless flow ends")
    monkeypatch.setattr(lease, "LET_GO_S", 60.0)  # a busy machine may need longer than anybody would wait
    with pytest.raises(LoopError) as caught:
        cross(careless)
    assert is_free(lab["far"], careless)
    for error in (running.error, caught.value):
        assert isinstance(error, LoopError)
        assert (error.code, "cut_from: [far]" in error.hint) == ("UNCUT", True)
    assert cross(there).records == 0


def test_copies_are_known_after_compaction_left_holes_in_them(lab: Lab, topic_name: str) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "1000",
        "min.cleanable.dirty.ratio": "0",
        "message.timestamp.after.max.ms": str(2**62),
    }
    lab["east"].create_topic(topic_name, configs=settings | {"segment.ms": str(2**40)})
    lab["west"].create_topic(topic_name, configs=settings)
    there, back = twins(lab, topic_name, tuning=dataclasses.replace(QUICK, merge_below_bytes=0))
    # Markers are stamped with the present: only times that lie ahead of them roll a segment per batch.
    ahead = int(time.time() * 1000) + 24 * HOUR_MS
    for turn in range(3):
        rows = [row | {"timestamp": ahead + turn * HOUR_MS} for row in numbered(10)]
        write(lab["east"].bootstrap, topic_name, [row | {"value": b"e%d" % turn} for row in rows])
    assert cross(there).records == 30
    later = ahead + 9 * HOUR_MS
    write(lab["west"].bootstrap, topic_name, [row | {"value": b"w", "timestamp": later} for row in numbered(5)])
    write(lab["west"].bootstrap, topic_name, [{"key": b"last", "value": b"w", "timestamp": later + 9 * HOUR_MS}])
    wait_until(lambda: len(read(lab["west"].bootstrap, topic_name)) <= 11, "the copies are compacted")
    copies = [batch for batch in stored(lab["west"], topic_name)[topic_name] if batch.is_transactional]
    assert any(batch.has_holes and batch.count for batch in copies)

    assert cross(back).records == 6
    assert cross(there).records == 0
    assert sum(value == b"w" for value in values(lab["east"].bootstrap, topic_name)) == 6


def test_renames_that_lead_back_are_cut(lab: Lab, topic_name: str) -> None:
    far = f"{topic_name}-far"
    lab["east"].create_topic(topic_name, configs=KEPT)
    there, back = twins(lab, topic_name)
    there = dataclasses.replace(there, naming=Naming(policy="rename", exact=((topic_name, far),)))
    back = dataclasses.replace(
        back, topics=Topics(include=(far,)), naming=Naming(policy="rename", exact=((far, topic_name),))
    )
    write(lab["east"].bootstrap, topic_name, numbered(10))
    assert cross(there).records == 10
    write(lab["west"].bootstrap, far, numbered(5, first=10))
    assert cross(back).records == 5
    assert cross(there).records == 0
    for cluster, name in ((lab["east"], topic_name), (lab["west"], far)):
        assert values(cluster.bootstrap, name) == [b"v%d" % n for n in range(15)]


def test_history_on_both_sides_needs_a_word_about_where_to_start(lab: Lab, topic_name: str) -> None:
    for side, first in (("east", 0), ("west", 100)):
        lab[side].create_topic(topic_name, configs=KEPT)
        write(lab[side].bootstrap, topic_name, numbered(10, first=first))
    there, back = twins(lab, topic_name)
    status = cross(there)
    assert codes(status) == {(topic_name, 0): "HISTORY"}
    assert "`latest`" in status.stopped[0].error and status.records == 0
    assert len(values(lab["west"].bootstrap, topic_name)) == 10

    assert cross(dataclasses.replace(there, starts=(Start(at="latest"),))).records == 0
    write(lab["east"].bootstrap, topic_name, numbered(3, first=200))
    assert cross(there).records == 3
    assert cross(dataclasses.replace(back, starts=(Start(at="earliest"),))).records == 10
    assert cross(there).records == 0


def test_twins_go_on_after_a_failover_and_what_never_crossed_crosses_then(lab: Lab, topic_name: str) -> None:
    there, back = twins(lab, topic_name)
    lab["east"].create_topic(topic_name, configs=KEPT)
    write(lab["east"].bootstrap, topic_name, numbered(10))
    assert (cross(there).records, cross(back).records) == (10, 0)
    write(lab["east"].bootstrap, topic_name, numbered(5, first=10))
    gone = dataclasses.replace(there, source=dataclasses.replace(there.source, bootstrap=("127.0.0.1:1",)))
    options = Options(carry=on_spark("local[*]", {}, lambda _: None), two_way=True)
    fail_over(gone, dataclasses.replace(options, kind=FAILOVER))
    with pytest.raises(RivalError):
        cross(there)
    write(lab["west"].bootstrap, topic_name, numbered(5, first=15))
    assert cross(back).records == 5  # the other direction was never frozen

    report = fail_back(there, options)

    assert sum(left.records for left in report.never_crossed) == 5 + 5  # also what came back meanwhile: it is cut
    assert (cross(there).records, cross(back).records) == (5, 0)
    for side in ("east", "west"):
        assert Counter(values(lab[side].bootstrap, topic_name)) == Counter(b"v%d" % n for n in range(20))


def test_in_a_mesh_every_record_is_everywhere_once(lab: Lab, tmp_path: Path, topic_name: str) -> None:
    names = ("east", "west", "far")
    flows = flows_of(lab, tmp_path, topic_name, *(f"{a}->{b}" for a, b in itertools.permutations(names, 2)))
    for name in names:
        lab[name].create_topic(topic_name, configs=KEPT)
    asyncio.run(all_cross(flows))
    for name in names:
        write(lab[name].bootstrap, topic_name, [{"value": f"{name}-{n}".encode()} for n in range(20)])
    asyncio.run(all_cross(flows))
    again = asyncio.run(all_cross(flows))
    assert [status.records for status in again] == [0] * 6
    everything = sorted(f"{name}-{n}".encode() for name in names for n in range(20))
    for name in names:
        assert sorted(v for v in values(lab[name].bootstrap, topic_name) if v) == everything


def test_a_lost_register_is_refused_on_both_sides_of_it(lab: Lab, tmp_path: Path, topic_name: str) -> None:
    there, back = flows_of(lab, tmp_path, topic_name, "east->west", "west->east")
    lab["east"].create_topic(topic_name, configs=KEPT)
    write(lab["east"].bootstrap, topic_name, numbered(10))
    assert cross(there).records == 10
    assert cross(back).records == 0
    west = lab["west"]
    with Crossing(back) as running:
        running.until(lambda status: status.state == "running" and bool(running.runner.orders))
        west.delete_topic(REGISTER)
        wait_until(lambda: partition_count(west.bootstrap, REGISTER) == 0, "the register is gone")
        west.create_topic(REGISTER)
        write(west.bootstrap, topic_name, numbered(1, first=10), client_id="never seen before")
        wait_until(lambda: running.error is not None, "the running flow ends")
    assert isinstance(running.error, LoopError)
    for flow in (there, back):
        with pytest.raises(LoopError, match="deleted or made anew") as caught:
            cross(flow)
        assert caught.value.code == "REGISTER_LOST"
        assert f"--forget {REGISTER}" in caught.value.hint
    assert len(values(lab["east"].bootstrap, topic_name)) == 10

    assert cross(there, forget=(REGISTER,)).records == 0
    assert cross(there).records == 0
