"""`isthmus status` and the metrics, of real flows on real brokers: what they say, and with which exit status."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import shutil
import socket
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.crossing import RECORDS_ONLY, Crossing, flow_between
from tests.integration.command import called, yaml_file
from tests.integration.prometheus import Prometheus
from tests.integration.sources import KEPT, delete_before, numbered, unique, write

from isthmus.cli.render import Output
from isthmus.cli.status import watching
from isthmus.engine.exporter import Exporter
from isthmus.lab import Lab
from isthmus.model import Flow
from isthmus.observe.metrics import Page

pytestmark = pytest.mark.integration

OK, NOBODY, SOURCE, STOPPED = 0, 5, 6, 9
PATIENCE_S = 120.0
APART = ("partition", "verdict", "state", "side", "le")


class Status:
    """The command, asked until it says what is waited for: a busy machine may be late with anything."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> dict[str, Any]:
        ended = called("status", self._file, "-o", "json")
        (found,) = ended.json()
        assert found["exit_status"] == ended.code
        return dict(found)

    def until(self, code: int, **wanted: object) -> dict[str, Any]:
        wanted["exit_status"] = code
        return _until(self.now, lambda found: all(found[name] == value for name, value in wanted.items()))


T = TypeVar("T")


def _until(look: Callable[[], T], happened: Callable[[T], bool]) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while not happened(found := look()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s; last seen: {found}"
        time.sleep(0.1)
    return found


def _is_well(metrics: dict[str, dict[str, float]]) -> bool:
    answers = metrics["isthmus_up"] == {"source": 1.0, "target": 1.0}
    return answers and metrics["isthmus_partitions"]["ok"] == 2.0 and metrics["isthmus_flow_state"]["running"] == 1.0


def _file(lab: Lab, folder: Path, alias: str, topic: str, source: str = "") -> Path:
    more = ["mm2_topics: {heartbeats: false, carry_heartbeats: false}"]
    bootstrap = source or lab["east"].bootstrap
    return yaml_file(folder, bootstrap, lab["west"].bootstrap, alias=alias, topics=[topic], more=more)


def _scraped(port: int) -> dict[str, dict[str, float]]:
    """Samples by name, then by what tells them apart within one flow; as Prometheus' own parser reads them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            apart = next((sample.labels[name] for name in APART if name in sample.labels), "")
            found.setdefault(sample.name, {})[apart] = sample.value
    return found


def _watched(flow: Flow, pictures: int) -> list[dict[str, Any]]:
    """What `status --watch -o json` prints until it is interrupted."""
    out = io.StringIO()

    async def watch() -> None:
        work = asyncio.ensure_future(watching([flow], False, Output.json))
        async with asyncio.timeout(PATIENCE_S):
            while out.getvalue().count("\n") < pictures and not work.done():
                await asyncio.sleep(0.05)
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    with contextlib.redirect_stdout(out):
        asyncio.run(watch())
    return [json.loads(line)[0] for line in out.getvalue().splitlines()]


def test_status_follows_a_flow_from_before_its_first_run_to_after_its_last(lab: Lab, tmp_path: Path) -> None:
    alias, topic = unique("status"), unique("topic")
    lab["east"].create_topic(topic, 2, configs=KEPT)
    write(lab["east"].bootstrap, topic, numbered(100, partitions=2))
    (tmp_path / "away").mkdir()
    status = Status(_file(lab, tmp_path, alias, topic))

    assert status.until(NOBODY)["state"] == "never ran"
    with Crossing(flow_between(lab, topic, alias=alias)) as crossing:
        crossing.until_copied(100, PATIENCE_S)
        found = status.until(OK, verdict="ok", lag=0)
        assert found["state"] == "running"
        assert found["here"] is True
        assert [(each["partition"], each["position"]) for each in found["partitions"]] == [(0, 50), (1, 50)]
        assert found["totals"]["records"] == 100
        assert [lane["host"] for lane in found["lanes"]] == [socket.gethostname()]
        assert sum(found["latency"]["counts"]) > 0
        assert sum(found["record_age"]["counts"]) > 0

        told = _until(
            lambda: called("status", tmp_path / f"{alias}.yaml", "--all"),
            lambda ended: ended.out.startswith(f"{alias}->west ok: driven by process "),
        )
        assert topic in told.out

        flow = flow_between(lab, topic, alias=alias)
        with Exporter([flow]) as exporter, Page("127.0.0.1", 0, exporter.look) as page:
            metrics = _until(lambda: _scraped(page.port), _is_well)
        assert metrics["isthmus_record_count_total"] == {"": 100.0}
        assert metrics["isthmus_partition_position"] == {"0": 50.0, "1": 50.0}
        assert metrics["isthmus_replication_latency_seconds_count"][""] > 0

        once = called("metrics", tmp_path / f"{alias}.yaml", "--once")
        assert f'isthmus_lag_records{{flow="{alias}->west"}} 0.0' in once.out.splitlines()
        assert [picture["flow"] for picture in _watched(flow, pictures=2)] == [flow.name] * 2

        blind = Status(_file(lab, tmp_path / "away", alias, topic, source="127.0.0.1:1"))
        found = blind.until(SOURCE, cause="UNREACHABLE")
        assert found["source"]["answers"] is False
        assert [each["position"] for each in found["partitions"]] == [50, 50]

    ended = status.until(NOBODY, state="not running", lag=0)
    assert ended["cause"] == "NOT_RUNNING"
    write(lab["east"].bootstrap, topic, numbered(10))
    behind = status.until(NOBODY, lag=10)
    assert [each["verdict"] for each in behind["partitions"]] == ["stalled", "ok"]


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus here (Debian's package prometheus)")
def test_prometheus_scrapes_a_flow_that_runs_and_its_rules_see_it(lab: Lab, tmp_path: Path) -> None:
    """Debian's real Prometheus, with our alert rules: it scrapes, answers a query, and has nothing to fire."""
    alias, topic = unique("scraped"), unique("topic")
    lab["east"].create_topic(topic, 2, configs=KEPT)
    write(lab["east"].bootstrap, topic, numbered(100, partitions=2))
    flow = flow_between(lab, topic, alias=alias, mm2_topics=replace(RECORDS_ONLY, heartbeats=True))
    with (
        Crossing(flow) as crossing,
        Exporter([flow]) as exporter,
        Page("127.0.0.1", 0, exporter.look) as page,
        Prometheus(tmp_path, page.port) as prometheus,
    ):
        crossing.until_copied(100, PATIENCE_S)
        query = f'isthmus_record_count_total{{flow="{alias}->west"}} == 100'
        assert _until(lambda: prometheus.values(query), bool) == [100.0]
        assert _until(lambda: prometheus.values(f'isthmus_partitions{{flow="{alias}->west",verdict="ok"}} == 2'), bool)
        assert _until(lambda: prometheus.values(f'isthmus_heartbeat_age_seconds{{flow="{alias}->west"}}'), bool)
        rules = prometheus.ask("rules")["groups"][0]["rules"]
        assert {rule["name"] for rule in rules} >= {"IsthmusPartitionStopped", "IsthmusCertificateExpiring"}
        assert [rule["name"] for rule in rules if rule["health"] == "err" or rule["state"] == "firing"] == []


def test_a_partition_that_stopped_is_told_with_its_code_and_its_gap(lab: Lab, tmp_path: Path) -> None:
    alias, topic = unique("status"), unique("topic")
    lab["east"].create_topic(topic, 1, configs=KEPT)
    write(lab["east"].bootstrap, topic, numbered(20))
    status = Status(_file(lab, tmp_path, alias, topic))
    with Crossing(flow_between(lab, topic, alias=alias)) as crossing:
        crossing.until_copied(20, PATIENCE_S)
    write(lab["east"].bootstrap, topic, numbered(20, first=20))
    delete_before(lab["east"].bootstrap, topic, {0: 30})
    with Crossing(flow_between(lab, topic, alias=alias)) as crossing:
        crossing.until(lambda seen: bool(seen.stopped), PATIENCE_S)
        found = status.until(STOPPED, cause="GAP", lost_offsets=10)
    (partition,) = found["partitions"]
    assert (partition["verdict"], partition["code"], partition["position"]) == ("stopped", "GAP", 20)
    assert [(gap["code"], gap["lost"]) for gap in found["gaps"]] == [("GAP", 10)]
    told = called("status", tmp_path / f"{alias}.yaml")
    assert told.code == STOPPED
    assert "[GAP]" in told.out
