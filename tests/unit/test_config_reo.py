"""kafka-reo's environment variables."""

from __future__ import annotations

import pytest

from isthmus.config.load import load_environment
from isthmus.errors import ConfigError
from isthmus.mm2.filters import choose
from isthmus.mm2.policy import remote_topic
from isthmus.model import Naming

ENV = {
    "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS": "source-kafka-cluster:9092",
    "KAFKA_CLUSTERS_SOURCE_TOPIC": "source.topic",
    "KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS": "destination-kafka-cluster:9092",
    "KAFKA_CLUSTERS_DESTINATION_TOPIC": "destination-topic",
    "PATH": "/bin",
}


def test_one_topic_goes_to_another_under_any_name() -> None:
    result = load_environment(ENV)
    (flow,) = result.flows
    assert flow.name == "source->destination"
    assert flow.source.bootstrap == ("source-kafka-cluster:9092",)
    assert flow.naming == Naming(policy="rename", exact=(("source.topic", "destination-topic"),))
    assert choose(flow, ["source.topic", "sourcextopic", "other", "destination-topic"]) == ["source.topic"]
    assert remote_topic(flow, "source.topic") == "destination-topic"
    assert flow.replication_factor == -1
    assert not (flow.mm2_topics.heartbeats or flow.mm2_topics.offset_syncs or flow.mm2_topics.checkpoints)
    assert result.warnings == ()
    assert result.places["flows.source->destination.topics"].where == "environment: KAFKA_CLUSTERS_SOURCE_TOPIC"


def test_the_name_may_stay() -> None:
    (flow,) = load_environment(ENV | {"KAFKA_CLUSTERS_DESTINATION_TOPIC": "source.topic"}).flows
    assert choose(flow, ["source.topic"]) == ["source.topic"]
    assert remote_topic(flow, "source.topic") == "source.topic"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"KAFKA_CLUSTERS_SOURCE_TOPIC": ""}, "the variable `KAFKA_CLUSTERS_SOURCE_TOPIC` is missing"),
        ({"KAFKA_CLUSTERS_SOURCE_TOPIC": "a.*"}, "the name of one topic is meant"),
        ({"KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS": "nope"}, "`nope` is not a broker address"),
    ],
)
def test_what_is_wrong_is_told(changed: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_environment(ENV | changed)
    assert says in f"{caught.value} {caught.value.hint}"


def test_an_environment_without_them_asks_for_a_file() -> None:
    with pytest.raises(ConfigError, match="no FILE is named"):
        load_environment({"PATH": "/bin"})


def test_a_slip_is_warned_of() -> None:
    (warning,) = load_environment(ENV | {"KAFKA_CLUSTERS_SOURCE_TOPICS": "x"}).warnings
    assert "did you mean `KAFKA_CLUSTERS_SOURCE_TOPIC`?" in warning
