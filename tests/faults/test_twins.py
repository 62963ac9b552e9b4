"""Two flows in opposite directions that keep topic names, whose attempts are killed with -9 while producers write on
both sides and the epochs of their producer ids are used up: every record is on both sides once, and none goes round.

A lane that dies leaves a transaction open, ids that it put on record and never used, and batches that are aborted by
the next fence. What is there at the end is judged by librdkafka, read_committed. That nothing goes round any more is
shown by records that are sent after all others there and back again: whatever was still under way in their partition
came before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from tests.crossing import Crossing
from tests.integration.aged import age
from tests.integration.sources import KEPT, forget_clients, read, wait_until
from tests.integration.twins import assert_once, authors_on, send_round, twins
from tests.killable import Killable

from isthmus.lab import ClusterSpec, Lab, LabCluster
from isthmus.model import REGISTER, Flow

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

SIDES = "east", "first"
STARTS, KILLS = 2, 2  # of each flow; kills in each start
# The first protocol uses epochs at fences alone, about 17 here. The second uses one in each transaction, too: with more
# left than fences take, EndTxn hands out the new ids, and lanes put them on record.
EPOCHS_LEFT = {"first": 10, "east": 25}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Clusters of their own, as their brokers are started again; `first` speaks the first protocol only."""
    with Lab([ClusterSpec(name="east"), ClusterSpec(name="first", features={"transaction.version": 1})]) as clusters:
        yield clusters
    forget_clients()


@dataclass(frozen=True)
class Twin:
    """One of the flows, the cluster it writes to, and the producer ids it begins with; few epochs of these are left."""

    flow: Flow
    target: LabCluster
    first_ids: frozenset[int]

    def new_ids(self) -> set[int]:
        """Those that came after, as far as they are on record."""
        entries = [(key or b"", value or b"") for _, key, value in read(self.target.bootstrap, REGISTER)]
        ours = {key for key, value in entries if key.startswith(b"id/") and self.flow.name.encode() in value}
        return {int(key[3:]) for key in ours} - self.first_ids

    def killer(self, topic: str, seed: int) -> Killable:
        return Killable(KILLS, self.target.bootstrap, topic, records=50, seed=seed)


def aged_twin(flow: Flow, target: LabCluster) -> Twin:
    names = [flow.transactional_id(0, turn) for turn in (0, 1)]
    return Twin(flow, target, frozenset(age(target, names, EPOCHS_LEFT[target.name])))


def goes_on(crossing: Crossing, killer: Killable) -> None:
    """All kills were made, and it copies more."""
    seen = crossing.until(lambda _: killer.kills == 0, 120).records
    crossing.until_copied(seen + 50, 120)


def test_twins_that_are_killed_in_the_middle_neither_lose_nor_double_nor_send_back_a_record(
    lab: Lab, topic_name: str
) -> None:
    """One is under the second protocol, the other under the first."""
    for name in SIDES:
        lab[name].create_topic(topic_name, 2, configs=KEPT)
    flows, targets = twins(lab, topic_name, *SIDES), (lab["first"], lab["east"])
    with ThreadPoolExecutor(2) as pool:
        both = tuple(pool.map(aged_twin, flows, targets))
    authors = authors_on(lab, topic_name, *SIDES, pause_s=0.1)
    for start in range(STARTS):
        killers = [twin.killer(topic_name, seed=10 * start + number) for number, twin in enumerate(both)]
        with Crossing(flows[0], killers[0]) as forth, Crossing(flows[1], killers[1]) as back:
            if start == 0:  # topics that are empty on both sides need no word about where to start
                forth.until(lambda status: bool(status.partitions), 120)
                back.until(lambda status: bool(status.partitions), 120)
                for author in authors:
                    author.start()
            goes_on(forth, killers[0])
            goes_on(back, killers[1])
            if start == STARTS - 1:
                for twin in both:
                    wait_until(lambda: len(twin.new_ids()) >= 2, "both ids of the lane are new", 120)  # noqa: B023
                for author in authors:
                    author.stop()
                send_round(lab, topic_name, authors, *SIDES)
        assert (forth.error, back.error) == (None, None)
        assert all(killer.hits for killer in killers), "no kill hit a lane"
    for name in SIDES:
        assert_once(lab[name], topic_name, authors)
    assert [killer.orders[0].second_protocol for killer in killers] == [False, True]
