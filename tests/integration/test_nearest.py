"""Reading from the nearest replica: with `client.rack`, a source broker in our rack is asked instead of the leader."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka.admin import NewTopic
from tests.crossing import Crossing, cross
from tests.integration.sources import KEPT, Pair, admin, forget_clients, numbered, wait_until, write

from isthmus.lab import ClusterSpec, Lab, LabCluster
from isthmus.model import Cluster, Flow, Topics

pytestmark = pytest.mark.integration

RACKS = {
    "broker.rack": "rack-{node}",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


@pytest.fixture
def racks() -> Iterator[LabCluster]:
    with Lab([ClusterSpec(name="racks", brokers=2, properties=RACKS)]) as clusters:
        yield clusters["racks"]
    forget_clients()


def _talks_to(address: str) -> bool:
    port = int(address.rpartition(":")[2])
    return any(bool(link.raddr) and link.raddr[1] == port for link in psutil.Process().net_connections())


def test_a_replica_in_our_rack_is_read_and_the_leader_when_it_dies(lab: Lab, racks: LabCluster) -> None:
    pair = Pair({"racks": racks, "west": lab["west"]}, "racks")
    topic = f"{pair.prefix}-near"
    # Led by broker 1, which is also the only controller: 2 is the one that may die.
    placed = NewTopic(topic, num_partitions=1, replica_assignment=[[1, 2]], config=KEPT)
    admin(racks.bootstrap).create_topics([placed])[topic].result(30)
    one, two = racks.bootstrap.split(",")
    write(one, topic, numbered(10))

    def flow(**settings: str) -> Flow:
        source = Cluster(alias=pair.alias, bootstrap=(one,), settings=settings)
        return dataclasses.replace(pair.flow(), source=source, topics=Topics(include=(topic,)))

    forget_clients()  # they may talk to any broker
    cross(flow())
    assert not _talks_to(two)
    with Crossing(flow(**{"client.rack": "rack-2"})) as crossing:
        crossing.until(lambda status: status.state == "running")
        wait_until(lambda: _talks_to(two), "the replica is read")
        write(one, topic, numbered(50, first=10))
        crossing.until_copied(50)
        racks.kill(2)
        write(one, topic, numbered(50, first=60))
        crossing.until_copied(100)
    pair.proven(topic, 110)
