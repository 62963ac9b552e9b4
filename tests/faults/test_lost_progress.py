"""The topic that holds progress is deleted, by mistake: nothing may be copied twice because of that."""

from __future__ import annotations

import asyncio

import pytest
from tests.crossing import cross, flow_between
from tests.integration.command import fill, unique

from isthmus.engine.positions import Positions
from isthmus.errors import TargetError
from isthmus.lab import Lab
from isthmus.lab.oracle import compare
from isthmus.model import Flow, TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.faults]


def is_equal(lab: Lab, topic: str, alias: str) -> bool:
    return compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, f"{alias}.{topic}").equal


def copied(lab: Lab) -> tuple[str, str, Flow]:
    topic, alias = unique("orders-"), unique("a")
    fill(lab["east"], topic, 200, 2)
    flow = flow_between(lab, topic, alias=alias)
    cross(flow)
    return topic, alias, flow


def test_progress_that_was_deleted_while_a_flow_was_down_is_missed_and_can_be_said_anew(lab: Lab) -> None:
    topic, alias, flow = copied(lab)
    lab["west"].delete_topic(flow.progress_topic)

    for _ in range(2):  # also when its topic is there again, and empty
        with pytest.raises(TargetError) as error:
            cross(flow)
        assert error.value.code == "PROGRESS_LOST"
        assert f"{topic}:0=OFFSET" in str(error.value.hint)
        assert is_equal(lab, topic, alias)

    asyncio.run(_say_where(flow, {TopicPartition(topic, number): 100 for number in (0, 1)}))
    cross(flow)
    assert is_equal(lab, topic, alias)


async def _say_where(flow: Flow, positions: dict[TopicPartition, int | None]) -> None:
    async with Positions(flow) as stored:
        await stored.write(positions)
