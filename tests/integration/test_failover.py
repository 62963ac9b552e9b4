"""Clients change sides and come back: nothing lost, nothing twice, groups at the very next record.

Records are written and read, and groups are made, by librdkafka. Lanes run in threads of this process.
"""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.crossing import QUICK, Crossing, carry, cross, flow_between
from tests.integration.grouped import KEPT, PARTITIONS, answered, commit, log, next_at, write_plain, write_transactions
from tests.integration.java import kafka_java, told_by_java
from tests.integration.sources import alter
from tests.integration.test_verify import Here

from isthmus.dr.failback import fail_back, last_failback, plan_failback
from isthmus.dr.failover import fail_over, last_failover, plan_failover
from isthmus.dr.mirror import mirror_of
from isthmus.dr.values import DISCARD, FAILOVER, KEEP, Options, Report, Step
from isthmus.engine.hold import Hold
from isthmus.engine.verify.proof import Wanted, prove
from isthmus.errors import ConfigError, IsthmusError, RivalError, SourceError
from isthmus.lab import Lab
from isthmus.model import Cluster, Flow, Groups, Naming
from isthmus.wire.cluster import Client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


OPTIONS = Options(carry=carry, quiet_s=0.5, patience_s=120.0)


class Stage:
    """One topic on both sides of one flow, under aliases of its own."""

    def __init__(self, lab: Lab, naming: str) -> None:
        self.lab = lab
        unique = uuid.uuid4().hex[:8]
        self.topic = f"sides-{unique}.eu"
        flow = flow_between(lab, rf"sides-{unique}\.eu", alias=f"e{unique}", tuning=QUICK, mm2_topics=KEPT)
        self.flow = dataclasses.replace(
            flow,
            target=Cluster(alias=f"w{unique}", bootstrap=flow.target.bootstrap),
            naming=Naming(policy=naming),
            groups=Groups(include=(f"{unique}-.*",)),
        )
        self.copy = self.topic if naming == "identity" else f"e{unique}.{self.topic}"
        self.group = f"{unique}-billing"
        lab["east"].create_topic(self.topic, partitions=PARTITIONS)

    def write(self, side: str, tag: str, records: int = 500) -> None:
        topic = self.topic if side == "east" else self.copy
        write_plain(self.lab[side].bootstrap, topic, records, tag)
        write_transactions(self.lab[side].bootstrap, topic, 6, tag)

    def values(self, side: str) -> dict[int, list[bytes | None]]:
        topic = self.topic if side == "east" else self.copy
        return {p: [v for _, v in records] for p, records in log(self.lab[side].bootstrap, topic).items()}

    def stand(self, side: str, share: float, name: str = "") -> dict[int, bytes | None]:
        """Let a group have read a part of each partition; the record that is next in each."""
        topic = self.topic if side == "east" else self.copy
        read = log(self.lab[side].bootstrap, topic)
        places = {p: (rows[int(len(rows) * share)][0] if share < 1 else rows[-1][0] + 1) for p, rows in read.items()}
        commit(self.lab[side].bootstrap, name or self.group, topic, places)
        return {p: next_at(read[p], places[p]) for p in places}

    def next_of(self, side: str, name: str = "") -> dict[int, bytes | None]:
        """The record that a consumer of the group would read next, by what is committed there."""
        topic = self.topic if side == "east" else self.copy
        consumer = Consumer({"bootstrap.servers": self.lab[side].bootstrap, "group.id": name or self.group})
        asked = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        places = answered(lambda: consumer.committed(asked, timeout=30))
        consumer.close()
        read = log(self.lab[side].bootstrap, topic)
        assert all(tp.offset >= 0 for tp in places), places
        return {tp.partition: next_at(read[tp.partition], tp.offset) for tp in places}


async def while_driven(stage: Stage, call: Callable[[], IsthmusError]) -> IsthmusError:
    """While somebody else has the flow back."""
    back = mirror_of(stage.flow, {stage.topic: stage.copy})
    client = Client(back.target)
    try:
        await client.start()
        await client.refresh(None)
        hold = Hold(back, client)
        await hold.read()
        async with hold.held(""):
            return await asyncio.to_thread(call)
    finally:
        client.close()


def refused(call: Callable[[], object]) -> IsthmusError:
    with pytest.raises(IsthmusError) as caught:
        call()
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("naming", ["identity", "default"])
def test_switchover_and_back_lose_nothing_and_double_nothing(lab: Lab, naming: str) -> None:
    stage = Stage(lab, naming)
    flow = stage.flow
    stage.write("east", "first ")
    with Crossing(flow) as crossing:
        crossing.until(lambda status: status.state == "running")
        stage.write("east", "second ")
        lagging, done = stage.stand("east", 0.3), stage.stand("east", 1, f"{stage.group}-2")
        plan = plan_failover(flow, OPTIONS)
        assert plan.driven_by
        assert not plan.phase
        steps: list[Step] = []
        report = fail_over(flow, OPTIONS, steps.append)
        crossing._thread.join(60)
        assert isinstance(crossing.error, RivalError)
        assert crossing.error.code == "FAILED_OVER"
    assert (report.records_at_risk, report.rpo_s) == (0, 0.0)
    assert [step.name for step in steps if step.state == "done"] == ["writers", "drain", "freeze", "groups", "switch"]
    assert {place.state for place in report.groups} == {"exact"}
    assert stage.values("west") == stage.values("east")
    assert stage.next_of("west") == lagging
    assert stage.next_of("west", f"{stage.group}-2") == done == dict.fromkeys(range(PARTITIONS))

    if naming == "default":  # what Java clients are told by MirrorMaker 2's own class is the same
        with kafka_java() as jvm:
            told = told_by_java(jvm, lab["west"].bootstrap, flow.source.alias, stage.group)
        assert told == {(one.topic, one.partition): one.offset for one in report.groups if one.group == stage.group}

    # Neither a driver nor a second failover may touch the copies now.
    assert refused(lambda: cross(flow)).code == "FAILED_OVER"
    assert refused(lambda: fail_over(flow, OPTIONS)).code == "FAILED_OVER"
    stage.write("west", "third ")
    lagging, new = stage.stand("west", 0.4), stage.stand("west", 0.95, f"{stage.group}-2")
    before = stage.values("west")
    back = fail_back(flow, OPTIONS)
    assert stage.values("east") == before == stage.values("west")
    assert back.never_crossed == ()
    assert {place.state for place in back.groups} == {"exact"}
    assert stage.next_of("east") == lagging
    assert stage.next_of("east", f"{stage.group}-2") == new
    assert refused(lambda: fail_back(flow, OPTIONS)).code == "NOT_FAILED_OVER"

    # The original direction goes on: what came back is not sent again.
    stage.write("east", "fourth ")
    cross(flow)
    assert stage.values("west") == stage.values("east")
    assert sum(map(len, stage.values("west").values())) > sum(map(len, before.values()))

    if naming == "default":
        return
    # And once more there and back, by the same commands.
    lagging = stage.stand("east", 0.9)
    assert fail_over(flow, OPTIONS).records_at_risk == 0
    assert stage.next_of("west") == lagging
    stage.write("west", "fifth ", 50)
    lagging = stage.stand("west", 0.97)
    assert asyncio.run(while_driven(stage, lambda: refused(lambda: fail_back(flow, OPTIONS)))).code == "RIVAL"
    fail_back(flow, OPTIONS)
    assert stage.next_of("east") == lagging
    assert stage.values("east") == stage.values("west")


class Crash(Exception):
    """What a kill would do, at a certain word of a step."""


def in_pieces(
    change: Callable[[Flow, Options, Callable[[Step], None]], Report], flow: Flow, options: Options, step: int = 1
) -> Report:
    """Run a change of sides again and again; each attempt dies a word (or some) later than the one before."""
    for words in range(1, 60, step):
        heard = 0

        def tell(_: Step) -> None:
            nonlocal heard
            heard += 1
            if heard > words:  # noqa: B023 - used within this turn only
                raise Crash

        try:
            return change(flow, options, tell)
        except Crash:
            continue
        except RivalError as error:  # it died after its last step: all is done, and the report is on record
            assert error.code in ("FAILED_OVER", "NOT_FAILED_OVER")
            return (last_failover if change is fail_over else last_failback)(flow, options)
    raise AssertionError("it never ended")


def dead(flow: Flow) -> Flow:
    """The same flow for somebody who cannot reach the source any more."""
    return dataclasses.replace(flow, source=Cluster(alias=flow.source.alias, bootstrap=("127.0.0.1:1",)))


def test_a_disaster_keeps_what_never_crossed_and_every_step_may_be_repeated(lab: Lab) -> None:
    stage = Stage(lab, "identity")
    flow = stage.flow
    stage.write("east", "crossed ")
    lagging = stage.stand("east", 0.5)
    stage.stand("east", 1, f"{stage.group}-2")
    cross(flow)  # publishes checkpoints at its end
    crossed = stage.values("east")
    stage.write("east", "never ", 200)
    never = {p: values[len(crossed[p]) :] for p, values in stage.values("east").items()}

    assert refused(lambda: fail_over(dead(flow), OPTIONS)).code == "SOURCE_GONE"
    disaster = dataclasses.replace(OPTIONS, kind=FAILOVER)
    assert refused(lambda: fail_over(flow, disaster)).code == "SOURCE_ALIVE"
    report = in_pieces(fail_over, dead(flow), disaster)
    assert report.heard_ms
    assert stage.values("west") == crossed
    assert stage.next_of("west") == lagging
    assert set(stage.next_of("west", f"{stage.group}-2").values()) == {None}

    stage.write("west", "after ", 300)
    new = stage.stand("west", 0.9)
    # One group stays where the disaster found it in some partitions: it has read all that crossed.
    on_west = stage.values("west")
    error = refused(lambda: fail_back(flow, OPTIONS))
    assert (error.code, isinstance(error, ConfigError)) == ("NEVER_CROSSED", True)
    plan = plan_failback(flow, OPTIONS)
    assert sum(left.records for left in plan.never_crossed) == sum(map(len, never.values()))

    back = in_pieces(fail_back, flow, dataclasses.replace(OPTIONS, never_crossed=KEEP), step=3)
    assert back.side_topics == (f"{stage.topic}.never-crossed",)
    aside = log(lab["west"].bootstrap, back.side_topics[0])
    assert {p: [v for _, v in rows] for p, rows in aside.items()} == never
    news = {p: values[len(crossed[p]) :] for p, values in on_west.items()}
    assert stage.values("east") == {p: crossed[p] + never[p] + news[p] for p in never}
    assert stage.values("west") == on_west
    assert stage.next_of("east") == new
    # What never crossed is not read by a group that had read everything: it goes on behind that.
    assert stage.next_of("east", f"{stage.group}-2") == {p: news[p][0] for p in news}

    stage.write("east", "again ", 100)
    cross(flow)
    more = {p: values[len(crossed[p] + never[p] + news[p]) :] for p, values in stage.values("east").items()}
    assert all(more.values())
    assert stage.values("west") == {p: on_west[p] + more[p] for p in more}
    proof = asyncio.run(prove(flow, Here(), Wanted()))  # what never crossed is on record as a gap
    assert proof.equal
    assert {gap.code for gap in proof.gaps} == {"NEVER_CROSSED"}


def test_discarded_records_stay_out_where_nothing_new_came(lab: Lab) -> None:
    stage = Stage(lab, "default")
    flow = stage.flow
    stage.write("east", "crossed ", 100)
    stage.stand("east", 1)
    cross(flow)
    stage.write("east", "never ", 100)
    fail_over(dead(flow), dataclasses.replace(OPTIONS, kind=FAILOVER))
    crossed, held = stage.values("west"), stage.values("east")
    report = fail_back(flow, dataclasses.replace(OPTIONS, never_crossed=DISCARD))
    assert report.side_topics == ()
    assert report.never_crossed
    assert set(stage.next_of("east").values()) == {None}  # behind what was discarded, not before it
    stage.write("east", "again ", 100)
    cross(flow)
    again = {p: values[len(held[p]) :] for p, values in stage.values("east").items()}
    assert stage.values("west") == {p: crossed[p] + again[p] for p in again}


def test_what_cannot_be_meant_is_refused_and_changes_nothing(lab: Lab) -> None:
    stage = Stage(lab, "identity")
    flow = stage.flow
    assert refused(lambda: plan_failover(flow, OPTIONS)).code == "NO_PROGRESS"
    stage.write("east", "first ", 100)
    stage.stand("east", 0.5)
    cross(flow)
    assert refused(lambda: fail_back(flow, OPTIONS)).code == "NOT_FAILED_OVER"

    # A target that takes no writes: nothing can be put on record, so nothing is begun.
    alter(lab["west"].bootstrap, flow.control_topic, max_message_bytes="10")
    assert refused(lambda: fail_over(flow, OPTIONS)).code == "TARGET_READ_ONLY"
    alter(lab["west"].bootstrap, flow.control_topic, max_message_bytes="1000000")
    assert not plan_failover(flow, OPTIONS).phase

    # Writers that do not stop, and a transaction that stays open: the flow copies on.
    hasty = dataclasses.replace(OPTIONS, patience_s=1.0, quiet_s=0.5)
    writer = Producer({"bootstrap.servers": lab["east"].bootstrap, "transactional.id": uuid.uuid4().hex})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(stage.topic, b"open", partition=0)
    assert writer.flush(30) == 0
    error = refused(lambda: fail_over(flow, hasty))
    assert (error.code, "open transaction" in error.message, type(error)) == ("WRITERS", True, SourceError)
    writer.abort_transaction(30)
    cross(flow)

    # A consumer that still works on the source: frozen, and the same command goes on when it has left.
    consumer = Consumer({"bootstrap.servers": lab["east"].bootstrap, "group.id": stage.group})
    consumer.subscribe([stage.topic])
    consumer.poll(10)
    error = refused(lambda: fail_over(flow, hasty))
    assert (error.code, stage.group in error.message) == ("CONSUMERS", True)
    assert refused(lambda: cross(flow)).code == "FAILED_OVER"
    assert refused(lambda: fail_back(flow, OPTIONS)).code == "NOT_FAILED_OVER"
    consumer.close()
    assert fail_over(flow, OPTIONS).records_at_risk == 0
    assert refused(lambda: fail_back(dead(flow), OPTIONS)).code == "SOURCE_GONE"
    assert refused(lambda: plan_failover(flow, OPTIONS)).code == "FAILED_OVER"
