"""Clients change sides and come back: nothing lost, nothing twice, groups at the very next record.

Records are written and read, and groups are made, by librdkafka. Lanes run in threads of this process.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.crossing import QUICK, Crossing, InThread, cross, flow_between
from tests.integration.grouped import KEPT, PARTITIONS, commit, log, next_at, write_plain, write_transactions

from isthmus.dr.failback import fail_back
from isthmus.dr.failover import fail_over, plan_failover
from isthmus.dr.values import Options, Step
from isthmus.engine.driver import Driver
from isthmus.errors import IsthmusError, RivalError
from isthmus.lab import Lab
from isthmus.model import Cluster, Flow, Groups, Naming

pytestmark = [pytest.mark.integration]


async def carry(flow: Flow) -> None:
    await Driver(flow, InThread(), until_caught_up=True).run()


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
        places = consumer.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], timeout=30)
        consumer.close()
        read = log(self.lab[side].bootstrap, topic)
        assert all(tp.offset >= 0 for tp in places), places
        return {tp.partition: next_at(read[tp.partition], tp.offset) for tp in places}


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

    # And once more there and back, by the same commands.
    lagging = stage.stand("east", 0.9)
    assert fail_over(flow, OPTIONS).records_at_risk == 0
    assert stage.next_of("west") == lagging
    stage.write("west", "fifth ", 50)
    lagging = stage.stand("west", 0.97)
    fail_back(flow, OPTIONS)
    assert stage.next_of("east") == lagging
    assert stage.values("east") == stage.values("west")
