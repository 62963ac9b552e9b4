"""Rights: whom a broker takes us for, what a flow needs, and topics that would share one name."""

from __future__ import annotations

import dataclasses

import pytest

from isthmus.config.credentials import login, principal
from isthmus.engine.checks import Outcome, exit_status, fail, of_right, ok, overall, warn
from isthmus.engine.control import ControlView
from isthmus.engine.needs import FLOW, NOTHING, TOPIC
from isthmus.engine.rights import Right, needs_of_flow, needs_of_topics, refuse_unallowed, told
from isthmus.engine.survey import collisions
from isthmus.errors import MachineError, PartitionStopped, TargetError
from isthmus.model import Cluster, Flow, Mm2Topics, Naming, Sync
from isthmus.wire.cluster import Client

FLOW_ = Flow(source=Cluster(alias="us", bootstrap=("a:1",)), target=Cluster(alias="eu", bootstrap=("b:1",)), lanes=2)


@pytest.mark.parametrize(
    ("settings", "who"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL"}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "k"}, "the user of the client certificate"),
        (login("PLAIN", 'a"d\\a', "secret", tls=True), 'User:a"d\\a'),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "the user of the SASL login"),
    ],
)
def test_the_principal_is_told_as_far_as_settings_tell_it(settings: dict[str, str], who: str) -> None:
    assert principal(settings) == who


def test_a_flow_needs_the_least_that_it_can_do_with() -> None:
    source, target = Client(FLOW_.source), Client(FLOW_.target)
    bare = Mm2Topics(offset_syncs=False, checkpoints=False)
    plain = dataclasses.replace(FLOW_, sync=Sync(configs=False), mm2_topics=bare, on_foreign_write="allow")
    needs = {(n.on, n.operation) for n in needs_of_topics(plain, ["orders"], source, target)}
    assert needs == {
        ("source", "DESCRIBE"),
        ("source", "READ"),
        ("target", "DESCRIBE"),
        ("target", "WRITE"),
        ("target", "CREATE"),
    }
    everything = [*needs_of_flow(FLOW_, source, target), *needs_of_topics(FLOW_, ["orders"], source, target)]
    assert not {n.operation for n in everything} & {"DELETE", "ALL", "CLUSTER_ACTION"}
    written = {n.name for n in everything if n.on == "source" and n.operation in ("WRITE", "CREATE", "ALTER")}
    assert written == {"heartbeats", "mm2-offset-syncs.eu.internal"}
    assert all(n.keeps_back == NOTHING for n in everything if n.name in written and n.on == "source")
    ids = {n.name for n in everything if n.resource == "transactional id"}
    assert ids == {"isthmus.us.probe", *(f"isthmus.us.{lane}.{turn}" for lane in (0, 1) for turn in "ab")}


def _right(keeps_back: str, topic: str = "") -> Right:
    return Right("target", "eu", "User:ada", "topic", "t", "WRITE", keeps_back, "produce", topic)


def test_only_what_the_whole_flow_needs_ends_it_and_all_that_is_missing_is_told_at_once() -> None:
    refuse_unallowed(FLOW_, [_right(TOPIC, "t"), _right(NOTHING)])
    with pytest.raises(TargetError, match="for User:ada; WRITE on topic t") as caught:
        refuse_unallowed(FLOW_, [_right(TOPIC, "t"), _right(FLOW)])
    assert caught.value.code == "RIGHTS"
    many = told([_right(NOTHING), *(_right(TOPIC, f"t{n:03}") for n in range(100))])
    assert "keeps back topic t000" in many[0]
    assert many[-1].startswith("and 81 more missing rights")


def test_topics_that_would_share_one_name_stop_but_not_the_one_that_was_there_first() -> None:
    flow = dataclasses.replace(FLOW_, naming=Naming(policy="rename", prefix="x-", exact=(("a", "x-b"),)))
    view = ControlView()
    assert {stop.code for stop in collisions(flow, ["a", "b", "c"], view).values()} == {"NAME_TAKEN"}
    assert set(collisions(flow, ["a", "b", "c"], view)) == {"a", "b"}
    view.values["topic/b"] = {}
    assert set(collisions(flow, ["a", "b", "c"], view)) == {"a"}


def test_a_report_ends_as_a_run_would() -> None:
    machine = fail("java", "", "no Java", "", MachineError)
    assert (overall([ok("a", "", "")]), exit_status([ok("a", "", ""), warn("b", "", "")])) == (Outcome.ok, 0)
    assert exit_status([of_right(_right(TOPIC, "t"))]) == PartitionStopped.exit_code
    assert exit_status([of_right(_right(FLOW)), of_right(_right(TOPIC, "t"))]) == TargetError.exit_code
    assert exit_status([of_right(_right(FLOW)), machine]) == MachineError.exit_code
    assert of_right(_right(NOTHING)).outcome is Outcome.warn
