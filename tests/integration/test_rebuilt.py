"""A failback onto a source that was lost and built anew, empty: another cluster under the same name."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import cast

import pytest
from tests.crossing import cross
from tests.integration.sources import forget_clients
from tests.integration.test_failover import OPTIONS, Stage, dead, in_pieces, refused
from tests.integration.test_verify import Here

from isthmus.dr.failback import fail_back, plan_failback
from isthmus.dr.failover import fail_over
from isthmus.dr.values import FAILOVER
from isthmus.engine.verify.proof import Wanted, prove
from isthmus.lab import ClusterSpec, Lab, LabCluster
from isthmus.model import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def anew() -> Iterator[LabCluster]:
    with Lab([ClusterSpec(name="anew")]) as clusters:
        yield clusters["anew"]
    forget_clients()


def test_a_source_that_was_built_anew_gets_everything_back_and_the_flow_goes_on(lab: Lab, anew: LabCluster) -> None:
    stage = Stage(lab, "default")
    stage.write("east", "old ", 200)
    stage.stand("east", 0.5)
    cross(stage.flow)
    options = dataclasses.replace(OPTIONS, rebuilt=True)
    fail_over(dead(stage.flow), dataclasses.replace(OPTIONS, kind=FAILOVER))
    assert refused(lambda: fail_back(stage.flow, options)).code == "NOT_REBUILT"
    stage.write("west", "after ", 100)
    places = stage.stand("west", 0.9)
    everything = stage.values("west")

    flow = dataclasses.replace(
        stage.flow, source=Cluster(alias=stage.flow.source.alias, bootstrap=tuple(anew.bootstrap.split(",")))
    )
    stage.lab = cast("Lab", {"east": anew, "west": lab["west"]})
    assert refused(lambda: fail_back(flow, OPTIONS)).code == "SOURCE_RECREATED"
    plan = plan_failback(flow, options)
    assert {row.copied for row in plan.rows} == {0}
    report = in_pieces(fail_back, flow, options, step=4)
    assert report.never_crossed == ()
    assert stage.values("east") == everything == stage.values("west")
    assert stage.next_of("east") == places

    stage.write("east", "again ", 50)
    cross(flow)
    assert stage.values("west") == stage.values("east")
    assert sum(map(len, stage.values("west").values())) > sum(map(len, everything.values()))
    assert asyncio.run(prove(flow, Here(), Wanted())).equal
