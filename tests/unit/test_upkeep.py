"""The standing work of a flow: what a round asks and alters, and what it says when a broker refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from isthmus.engine import upkeep
from isthmus.engine.upkeep import SettingsKeeper
from isthmus.errors import BrokerRefused
from isthmus.model import Cluster, Flow
from isthmus.wire import codes
from isthmus.wire.settings import DEFAULT, SET_ON_TOPIC, Alteration, Described, Setting, Settings

FLOW = Flow(source=Cluster(alias="us", bootstrap=("a:1",)), target=Cluster(alias="eu", bootstrap=("b:1",)))
REMOTES = {"orders": "us.orders", "notes": "us.notes"}


class Clusters:
    """Stands for both clusters: settings by topic, and the changes that the target refuses."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, Setting]] = {}
        self.refused: dict[Alteration, int] = {}
        self.asked: list[tuple[str, ...]] = []
        self.altered: list[dict[str, list[Alteration]]] = []

    async def describe(self, _: object, topics: Iterable[str], __: object = None) -> Described:
        names = tuple(topics)
        self.asked.append(names)
        return Described({name: dict(self.topics[name]) for name in names}, {})

    async def alter(self, _: object, changes: Mapping[str, Sequence[Alteration]]) -> dict[str, BrokerRefused]:
        if changes:
            self.altered.append({topic: list(alterations) for topic, alterations in changes.items()})
        refused = {}
        for topic, alterations in changes.items():
            bad = [self.refused[each] for each in alterations if each in self.refused]
            if bad:
                refused[topic] = BrokerRefused(f"{topic} refused", bad[0], where="cluster eu")
                continue
            for name, value in alterations:
                self.topics[topic][name] = Setting("0", DEFAULT) if value is None else Setting(value, SET_ON_TOPIC)
        return refused


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Clusters:
    made = Clusters()
    plain: Settings = {"a": Setting("0", DEFAULT), "b": Setting("0", DEFAULT)}
    made.topics = {name: dict(plain) for pair in REMOTES.items() for name in pair}
    monkeypatch.setattr(upkeep, "describe_settings", made.describe)
    monkeypatch.setattr(upkeep, "alter_settings", made.alter)
    return made


def keeper(said: list[str]) -> SettingsKeeper:
    nobody: Any = None
    return SettingsKeeper(FLOW, nobody, nobody, said.append, said.append)


def rounds(kept: SettingsKeeper, number: int = 1) -> None:
    for _ in range(number):
        asyncio.run(kept.round(REMOTES))


def test_an_unchanged_round_asks_the_source_once_and_alters_nothing(clusters: Clusters) -> None:
    kept = keeper([])
    rounds(kept)
    clusters.asked.clear()
    rounds(kept, 3)
    assert clusters.asked == [("orders", "notes")] * 3
    assert clusters.altered == []


def test_only_what_differs_is_sent_and_only_of_the_topic_that_changed(clusters: Clusters) -> None:
    said: list[str] = []
    kept = keeper(said)
    rounds(kept)
    clusters.topics["notes"]["b"] = Setting("7", SET_ON_TOPIC)
    clusters.asked.clear()
    rounds(kept, 2)
    assert clusters.asked == [("orders", "notes"), ("us.notes",), ("orders", "notes")]
    assert clusters.altered == [{"us.notes": [Alteration("b", "7")]}]
    assert said == ["setting of us.notes: b=7"]


def test_a_value_that_is_refused_does_not_keep_the_others_back(clusters: Clusters) -> None:
    said: list[str] = []
    clusters.topics["orders"] = {"a": Setting("1", SET_ON_TOPIC), "b": Setting("2", SET_ON_TOPIC)}
    clusters.refused[Alteration("a", "1")] = codes.INVALID_CONFIG
    rounds(keeper(said))
    assert clusters.topics["us.orders"]["b"] == Setting("2", SET_ON_TOPIC)
    refused = [text for text in said if "not taken over" in text]
    assert refused == [
        "setting not taken over: us.orders: a=1: us.orders refused (cluster eu); set it there by hand, "
        "or exclude a (sync.config_exclude, or config.properties.exclude)"
    ]


def test_without_the_right_to_alter_nothing_is_tried_one_by_one(clusters: Clusters) -> None:
    said: list[str] = []
    clusters.topics["orders"] = {"a": Setting("1", SET_ON_TOPIC), "b": Setting("2", SET_ON_TOPIC)}
    clusters.refused[Alteration("a", "1")] = codes.TOPIC_AUTHORIZATION_FAILED
    rounds(keeper(said))
    assert len(clusters.altered) == 1
    assert all("grant ALTER_CONFIGS on us.orders" in text for text in said)


def test_a_thousand_changes_are_told_in_a_few_lines(clusters: Clusters) -> None:
    said: list[str] = []
    for name in "orders", "notes":
        clusters.topics[name] |= {f"s{n}": Setting("1", SET_ON_TOPIC) for n in range(10)}
        clusters.topics[REMOTES[name]] |= {f"s{n}": Setting("0", DEFAULT) for n in range(10)}
    rounds(keeper(said))
    assert len(said) == 6
    assert said[-1] == "and 15 more settings"
