"""What a load needs: figures follow from constants, impossible loads are refused with the bound that forbids them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from typer.testing import CliRunner

from isthmus.bench.scaling import BOUNDS, LOADS, scaled, simulate, weigh
from isthmus.cli.app import app
from isthmus.cli.size import read_bytes, read_seconds
from isthmus.errors import ConfigError
from isthmus.sizing.constants import CODECS, load
from isthmus.sizing.needs import BUSY, Load, cpu_per_gb, size

OURS = load()
USUAL = Load(rate=200e6, partitions=500, rtt_s=0.04)


def command(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["size", *words])
    return done.exit_code, done.output if not done.exception or done.exit_code == 0 else repr(done.exception)


def test_every_constant_says_where_it_came_from() -> None:
    given = OURS.as_json()
    assert set(OURS.origins) == set(given) - {"machine", "origins"}
    assert set(OURS.merged_s_per_gb) == set(OURS.ratio) == set(CODECS)
    assert all(OURS.machine[name] for name in ("cores", "time", "platform"))


def test_lanes_follow_from_what_a_gigabyte_costs() -> None:
    need = size(USUAL, OURS)
    assert need.lanes == -(-USUAL.rate // (need.lane_mb_per_s * 1e6))
    assert need.lane_mb_per_s == pytest.approx(BUSY * 1000 / need.cpu_s_per_gb, rel=0.01)
    assert need.cores == need.lanes
    assert need.executors * USUAL.cores_per_executor >= need.lanes
    assert need.network_in_mbit == pytest.approx(200e6 * OURS.ratio["lz4"] * 8 / 1e6)


@given(some.floats(1e3, 5e9), some.integers(100, 100_000), some.sampled_from(CODECS), some.floats(1e-4, 0.2))
def test_more_load_never_needs_less(rate: float, partitions: int, codec: str, rtt: float) -> None:
    one = Load(rate=rate, partitions=partitions, codec=codec, rtt_s=rtt)
    try:
        less, more = size(one, OURS), size(replace(one, rate=2 * rate), OURS)
    except ConfigError:
        return  # told below
    assert less.lanes <= more.lanes <= partitions
    assert less.network_in_mbit < more.network_in_mbit
    assert cpu_per_gb(replace(one, tls=True), OURS) > cpu_per_gb(one, OURS)
    assert cpu_per_gb(replace(one, tunnel=True), OURS) > cpu_per_gb(one, OURS)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rate": 0.0}, "--rate must be above 0"),
        ({"partitions": 0}, "--partitions must be above 0"),
        ({"rtt_s": 0.0}, "--rtt must be above 0"),
        ({"codec": "brotli"}, "brotli is no codec"),
        ({"far": "middle"}, "middle is no side"),
        ({"rate": 10e9, "partitions": 10}, "a partition would have to carry 1,000.0 MB/s"),
        ({"far": "target", "rtt_s": 0.1, "latency_s": 0.05}, "50 ms cannot be had: the distance alone takes 200 ms"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        size(replace(USUAL, **changes), OURS)  # type: ignore[arg-type]
    assert told in str(refused.value)


def test_a_partition_is_bound_by_distance_and_window() -> None:
    far = replace(USUAL, rate=900e6, partitions=10, rtt_s=0.2, codec="none")
    with pytest.raises(ConfigError) as refused:
        size(far, OURS)
    assert "2048 KB of it are on their way in a round trip of 200 ms" in refused.value.hint
    least = int(refused.value.hint.split("use at least ")[1].split(" ")[0].replace(",", ""))
    assert size(replace(far, partitions=least), OURS).lanes > 0


@pytest.mark.parametrize(
    ("text", "value"), [("200MB/s", 200e6), ("1kB", 1e3), ("16KiB", 16_384), ("7", 7), ("1.5G", 1.5e9)]
)
def test_amounts_are_read(text: str, value: float) -> None:
    assert read_bytes(text, "--rate") == value


def test_times_are_read_and_others_refused() -> None:
    assert (read_seconds("40ms", ""), read_seconds("2s", ""), read_seconds("5", "")) == (0.04, 2.0, 0.005)
    for wrong in ("fast", "-1ms", ""):
        with pytest.raises(ConfigError):
            read_seconds(wrong, "--rtt")
    with pytest.raises(ConfigError):
        read_bytes("lots", "--rate")


def test_the_command_tells_it_in_words_and_as_json(tmp_path: Path) -> None:
    words = ["--rate", "200MB/s", "--record", "1kB", "--partitions", "500", "--rtt", "40ms", "--codec", "lz4", "--tls"]
    code, text = command(*words, "--tunnel")
    assert code == 0
    assert all(word in text for word in ("lanes", "executors", "network", "latency", "tunnel", "merged_s_per_gb"))
    code, text = command(*words, "-o", "json")
    found = json.loads(text)
    assert found["need"]["lanes"] == size(replace(USUAL, tls=True), OURS).lanes
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({**found["constants"], "lane_mb": 9_999.0}))
    code, text = command(*words, "-o", "json", "--constants", str(file))
    assert json.loads(text)["need"]["executor_mb"] > 9_999
    code, text = command(*words, "--constants", str(tmp_path / "none.json"))
    assert code != 0
    code, text = command("--partitions", "3")
    assert (code, "--rate and --partitions are needed" in text) == (code, True)
    assert code != 0


def test_what_breaks_first_is_computed_and_flows_that_are_many_keep_every_bound() -> None:
    steps = simulate(OURS)
    assert [(step.gb_per_s, step.partitions) for step in steps if step.flows == 1] == list(LOADS)
    assert steps[0].broken == ()
    largest = steps[-1]
    assert (largest.gb_per_s, largest.partitions) == LOADS[-1]
    assert largest.flows > 1
    assert largest.broken == ()
    alone = next(step for step in steps if step.flows == 1 and step.partitions == largest.partitions)
    assert BOUNDS["record_mb"][1] in alone.broken


def test_a_flow_twice_as_large_weighs_twice_as_much() -> None:
    weights = weigh()
    assert 20 < weights.report_bytes < 200
    small, large = (scaled(OURS, weights, 1.0, partitions, 1) for partitions in (5_000, 10_000))
    assert large.record_mb == pytest.approx(2 * small.record_mb, rel=0.01)
    assert large.metadata_mb == pytest.approx(2 * small.metadata_mb)
