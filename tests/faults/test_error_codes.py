"""Every error code that a broker can answer has one reaction: try again, plan anew, or stop that partition.

Real brokers behind doors that answer as a script says (`scripted`); judged by librdkafka. A topic has a partition for
each code, so one run shows the reaction to all of them side by side, and that none is another partition's trouble (I7).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from tests.crossing import Crossing, cross
from tests.faults.scripted import END, FETCH, PRODUCE, Script
from tests.faults.staged import EVERY_CODE as ALL
from tests.faults.staged import Stage, staged
from tests.integration.command import fill, unique

from isthmus.engine import refusals
from isthmus.lab import ClusterSpec
from isthmus.observe.status import FlowStatus
from isthmus.wire import codes

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(600)]

# The order is void: its driver fences, reads progress and plans anew. Nothing is written under that identity any more.
VOID = {47, 49, 90}
MOVING = {5, 6, 7, 9, 13, 19, 20, 56, 74, 75, 78, 89}
READ_AGAIN = MOVING | {-1, 1, 2, 3, 100, 103}
WRITTEN_AGAIN = MOVING | {-1, 2, 3, 10, 18, 45, 48, 51, 59, 87, 120}
PER_PARTITION = 5


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged(ClusterSpec(name="east"), ClusterSpec(name="west")) as found:
        yield found


@pytest.fixture(autouse=True)
def as_usual(stage: Stage) -> Iterator[None]:
    yield
    stage.calm()


def once(api: int, topic: str, answers: Sequence[int]) -> Script:
    """To the first request for each partition of a topic: the code at its number."""
    seen: Counter[int] = Counter()

    def script(asked: int, name: str, partition: int) -> int:
        if asked != api or name != topic or seen[partition]:
            return 0
        seen[partition] += 1
        return answers[partition]

    return script


def stopped(status: FlowStatus, answers: Sequence[int]) -> dict[int, str]:
    return {answers[each.partition]: each.code for each in status.stopped}


def test_every_answer_to_a_fetch_has_its_reaction(stage: Stage) -> None:
    topic, alias = unique("fetch-"), unique("a")
    fill(stage.lab["east"], topic, PER_PARTITION * len(ALL), len(ALL))
    stage.east.script = once(FETCH, topic, ALL)

    status = cross(stage.flow(topic, alias))

    assert stopped(status, ALL) == {code: "SOURCE_REFUSED" for code in ALL if code not in READ_AGAIN}
    found = stage.verdict(topic, alias)
    assert (found.lost, found.duplicated, found.reordered) == (PER_PARTITION * len(status.stopped), 0, 0)
    assert status.lag == found.lost


def test_every_answer_to_a_produce_has_its_reaction(stage: Stage) -> None:
    answers = [code for code in ALL if code not in VOID]
    topic, alias = unique("produce-"), unique("a")
    fill(stage.lab["east"], topic, PER_PARTITION * len(answers), len(answers))
    stage.west.script = once(PRODUCE, f"{alias}.{topic}", answers)

    status = cross(stage.flow(topic, alias))

    expected = {code: "TARGET_REFUSED" for code in answers if code not in WRITTEN_AGAIN}
    assert stopped(status, answers) == expected | {100: "TARGET_RECREATED"}
    found = stage.verdict(topic, alias)
    assert (found.lost, found.duplicated, found.reordered) == (PER_PARTITION * len(status.stopped), 0, 0)


@pytest.mark.parametrize("code", sorted(VOID))
def test_an_answer_that_says_who_writes_is_not_valid_any_more_makes_the_order_void(stage: Stage, code: int) -> None:
    topic, alias = unique("void-"), unique("a")
    fill(stage.lab["east"], topic, 100, 2)
    stage.west.script = once(PRODUCE, f"{alias}.{topic}", [code, 0])

    status = cross(stage.flow(topic, alias))

    assert stage.west.told[PRODUCE, code] == 1
    assert status.lag == 0
    assert stage.verdict(topic, alias).equal


def test_every_answer_to_a_commit_ends_in_every_record_once(stage: Stage) -> None:
    """Every third commit of the flow's lane is answered with the next code, and is not carried out."""
    answers = [14, 15, 16, 51, 47, 48, 49, 90, 120, 7, 13, -1, 42, 53]
    topic, alias = unique("end-"), unique("a")
    left, count = list(answers), [0]

    def script(asked: int, name: str, _: int) -> int:
        if asked != END or f".{alias}.0." not in name:
            return 0
        count[0] += 1
        return left.pop(0) if left and count[0] % 3 == 0 else 0

    stage.west.script = script
    fill(stage.lab["east"], topic, 40, 4)
    with Crossing(stage.flow(topic, alias)) as crossing:
        patience = time.monotonic() + 240
        while left and time.monotonic() < patience:
            fill_more(stage, topic, 8)
        assert left == []
        crossing.until(lambda _: stage.verdict(topic, alias).equal, 120)


def test_i7_a_partition_that_the_target_cannot_take_for_a_while_holds_no_other_up(stage: Stage) -> None:
    """As one whose replicas are too few: others are copied all the while, and it follows when they are back."""
    topic, alias = unique("few-"), unique("a")
    copy, trouble = f"{alias}.{topic}", [True]
    fill(stage.lab["east"], topic, 400, 4)
    stage.west.script = lambda api, name, each: 19 if (api, name, each) == (PRODUCE, copy, 0) and trouble[0] else 0

    with Crossing(stage.flow(topic, alias)) as crossing:
        crossing.until(lambda status: _behind(status, topic) == {0})
        fill_more(stage, topic, 400)
        crossing.until(lambda status: status.records >= 600 and _behind(status, topic) == {0})
        assert not crossing.status or not crossing.status.stopped
        trouble[0] = False
        crossing.until(lambda status: status.records >= 800 and not _behind(status, topic))
    assert stage.verdict(topic, alias).equal


def _behind(status: FlowStatus, topic: str) -> set[int]:
    heard = [each for each in status.partitions if each.topic == topic and each.end >= 100]
    return {each.partition for each in heard if each.lag} if len(heard) == 4 else {-1}


def fill_more(stage: Stage, topic: str, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": stage.lab["east"].bootstrap, "log_level": 0})
    for number in range(records):
        producer.produce(topic, b"more %d" % number, partition=number % 4)
    producer.flush(60)


def test_the_table_of_codes_that_move_is_the_one_that_is_tested() -> None:
    assert codes.MOVING == MOVING
    assert codes.VOID == VOID
    assert refusals._MAY_HEAL | MOVING == WRITTEN_AGAIN


def flipped(records: bytes, at: int) -> bytes:
    return records[:at] + bytes([records[at] ^ 0x40]) + records[at + 1 :]


@pytest.mark.parametrize("at", [-1, 20, 8], ids=["payload", "checksum", "length"])
def test_a_batch_that_is_damaged_on_its_way_is_asked_for_again(stage: Stage, at: int) -> None:
    topic, alias, seen = unique("once-"), unique("a"), set[int]()
    fill(stage.lab["east"], topic, 400, 4)

    def damage(name: str, partition: int, records: bytes) -> bytes:
        if name != topic or partition in seen:
            return records
        seen.add(partition)
        return flipped(records, at % len(records))

    stage.east.damage = damage
    status = cross(stage.flow(topic, alias))

    assert (len(seen), status.stopped, status.lag) == (4, (), 0)
    assert stage.verdict(topic, alias).equal


@pytest.mark.parametrize("at", [-1, 16], ids=["payload", "format"])
def test_a_batch_that_stays_damaged_stops_its_partition_and_no_other(stage: Stage, at: int) -> None:
    """Where only the checksum tells, it is the target's broker that finds out."""
    topic, alias = unique("bad-"), unique("a")
    fill(stage.lab["east"], topic, 400, 4)
    stage.east.damage = lambda name, number, records: (
        flipped(records, at % len(records)) if (name, number) == (topic, 1) else records
    )
    with Crossing(stage.flow(topic, alias)) as crossing:
        crossing.until(lambda now: bool(now.stopped))
        fill_more(stage, topic, 400)
        status = crossing.until_copied(600)
    assert [(each.partition, each.code) for each in status.stopped] == [(1, "CORRUPT_BATCH")]
    stage.east.damage = None
    cross(stage.flow(topic, alias))
    assert stage.verdict(topic, alias).equal
