"""`isthmus check`: three live tests of a running flow; whatever happens, the probe topic is gone afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crossing import Crossing
from tests.integration.command import Running, called, topics_of, wait_for, yaml_file
from tests.integration.sources import Pair, wait_until

from isthmus.engine.probe import STEM
from isthmus.errors import ConfigError, ProofError, TargetError
from isthmus.model import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def _file(pair: Pair, folder: Path, *topics: str) -> Path:
    ends = pair.source.bootstrap, pair.target.bootstrap
    return yaml_file(folder, *ends, alias=pair.alias, topics=topics, more=["tuning: {refresh_seconds: 0.5}"])


def _probes(pair: Pair) -> set[str]:
    """Of this test; others may check their own flows."""
    found = topics_of(pair.source.bootstrap) | topics_of(pair.target.bootstrap)
    return {topic for topic in found if f"{pair.prefix}-{STEM}" in topic}


def test_three_verdicts_and_nothing_left_behind(pair: Pair, tmp_path: Path) -> None:
    topic = pair.topic("orders")
    pair.write(topic, 10)
    file = _file(pair, tmp_path, f"{pair.prefix}-.*")
    with Crossing(pair.flow()) as crossing:
        crossing.until_copied(10)
        ended = called("check", file, "--prefix", f"{pair.prefix}-", "--records", "40", "-o", "json")
        assert ended.code == 0, ended
        (found,) = ended.json()
        verdicts = {each["test"]: each for each in found["tests"]}
        assert {name: each["verdict"] for name, each in verdicts.items()} == {
            "topic replication": "passed",
            "partition balance": "passed",
            "event propagation": "passed",
        }
        rows = verdicts["partition balance"]["figures"]["partitions"]
        assert [(row["source"], row["target"]) for row in rows] == [(10, 10), (11, 11), (12, 12), (13, 13)]
        assert verdicts["topic replication"]["figures"]["seconds"] >= 0
        assert len(verdicts["event propagation"]["figures"]["seconds"]) == 10
        assert (found["left"], found["flow"]) == ([], f"{pair.alias}->west")
        wait_until(lambda: _probes(pair) == set(), "the probe topic is gone")

        # The flow has not noticed more of it than a topic that came and went.
        pair.write(topic, 10, first=10)
        status = crossing.until(lambda now: any("is gone" in event for event in now.events))
        wait_until(lambda: pair.verdict(topic).equal, "what came afterwards")
        assert status.stopped == ()
        wait_until(
            lambda: crossing.driver is not None and not crossing.driver.steering.paused.topics, "no pause is left"
        )
    pair.proven(topic, 20)


def test_what_keeps_a_check_from_beginning_is_told_and_nothing_is_created(pair: Pair, tmp_path: Path) -> None:
    topic = pair.topic("orders")
    unchosen = called("check", _file(pair, tmp_path, topic))
    assert unchosen.code == ConfigError.exit_code, unchosen
    assert f"add `{STEM}.*` to its topics" in unchosen.err
    file = _file(pair, tmp_path, f"{pair.prefix}-.*")
    never = called("check", file, "--prefix", f"{pair.prefix}-")
    assert (never.code, "has never run" in never.err) == (TargetError.exit_code, True), never
    with Crossing(pair.flow()) as crossing:
        crossing.until(lambda now: now.state == "running")
    nobody = called("check", file, "--prefix", f"{pair.prefix}-")
    assert (nobody.code, "[NOT_RUNNING]" in nobody.err) == (TargetError.exit_code, True), nobody
    assert _probes(pair) == set()


def test_a_topic_that_does_not_cross_fails_the_check_and_an_interrupt_leaves_nothing(
    pair: Pair, tmp_path: Path
) -> None:
    """The running flow knows of one topic only, which the file that is checked does not say."""
    topic = pair.topic("orders")
    pair.write(topic, 10)
    file, words = _file(pair, tmp_path, f"{pair.prefix}-.*"), ("--prefix", f"{pair.prefix}-")
    with Crossing(pair.flow(topics=Topics(include=(topic,)))) as crossing:
        crossing.until_copied(10)
        ended = called("check", file, *words, "--patience", "1")
        assert ended.code == ProofError.exit_code, ended
        assert "failed" in ended.out
        assert "not made" in ended.out
        assert _probes(pair) == set()
        with Running("check", file, *words) as running:
            wait_for(lambda: _probes(pair), what="the probe topic")
            running.interrupt()
            assert running.ended(120).code == 130
        wait_until(lambda: _probes(pair) == set(), "the probe topic is gone")
