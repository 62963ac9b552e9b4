"""Logs that change while they are copied: cleaned, deleted from the front, stamped by the target; and wrong clocks.

Threads instead of Spark, real brokers and their own cleaner; read by librdkafka.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Callable

import pytest
from tests.crossing import QUICK, Crossing, cross
from tests.integration.sources import Pair, codes, delete_before, numbered, read, wait_until, write
from tests.integration.world import CLEANED_AT_ONCE, HOUR_MS

from isthmus.engine import follower, refusals
from isthmus.errors import RivalError
from isthmus.lab import Lab
from isthmus.wire import codes as wire_codes

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(300)]

KEYS = 20


@pytest.fixture
def pair(lab: Lab) -> Pair:
    return Pair(lab)


def state(bootstrap: str, topic: str) -> dict[bytes | None, bytes]:
    """The last value of each key; what was deleted is not there."""
    last = {key: value for _, key, value in read(bootstrap, topic)}
    return {key: value for key, value in last.items() if value is not None}


class Overwriting:
    """Overwrites the same few keys without end, and deletes one now and then."""

    def __init__(self, pair: Pair, topic: str) -> None:
        self._done = threading.Event()
        self.rounds = 0
        self._thread = threading.Thread(target=self._run, args=(pair.source.bootstrap, topic), daemon=True)

    def __enter__(self) -> Overwriting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(60)

    def _run(self, bootstrap: str, topic: str) -> None:
        while not self._done.wait(0.02):
            self.rounds += 1
            gone = self.rounds % KEYS
            rows = [
                {"key": b"k%d" % n, "value": None if n == gone else b"%d" % self.rounds, "partition": 0}
                for n in range(KEYS)
            ]
            write(bootstrap, topic, rows)


def test_a_log_that_is_compacted_while_it_is_copied_ends_in_the_same_state(pair: Pair) -> None:
    topic = pair.topic("cleaned", settings=CLEANED_AT_ONCE)
    pair.target.create_topic(pair.remote(topic), 1, 1, {"cleanup.policy": "compact"})
    with Overwriting(pair, topic) as writer, Crossing(pair.flow()) as crossing:
        # The cleaner works about once a second; a lane that starts anew reads what it has left.
        for _ in range(3):
            before = writer.rounds
            wait_until(lambda before=before: writer.rounds > before + 50, "it was overwritten")  # type: ignore[misc]
            crossing.until(lambda _: not crossing.error)
    cross(pair.flow())
    written = writer.rounds * KEYS
    wait_until(lambda: len(read(pair.source.bootstrap, topic)) < written, "the cleaner was there")
    for _ in range(2):  # also behind what the cleaner has emptied since
        status = cross(pair.flow())
        assert (status.stopped, status.lag) == ((), 0)
        assert state(pair.source.bootstrap, topic) == state(pair.target.bootstrap, pair.remote(topic))
        write(pair.source.bootstrap, topic, numbered(5))
    cross(pair.flow())
    assert state(pair.source.bootstrap, topic) == state(pair.target.bootstrap, pair.remote(topic))


def test_a_key_that_was_deleted_and_forgotten_while_a_flow_was_down_keeps_its_value_on_the_target(pair: Pair) -> None:
    """A tombstone that is gone cannot be copied: the line of the guarantees that says so."""
    topic = pair.topic("forgotten", settings=CLEANED_AT_ONCE)
    pair.target.create_topic(pair.remote(topic), 1, 1, {"cleanup.policy": "compact"})
    write(pair.source.bootstrap, topic, [{"key": b"gone", "value": b"old", "partition": 0}])
    cross(pair.flow())
    write(pair.source.bootstrap, topic, [{"key": b"gone", "value": None, "partition": 0}])

    def is_forgotten() -> bool:
        time.sleep(0.5)
        write(pair.source.bootstrap, topic, [{"key": b"other", "value": b"1", "partition": 0}])
        return all(key != b"gone" for _, key, _ in read(pair.source.bootstrap, topic))

    wait_until(is_forgotten, "the cleaner has taken the tombstone")
    status = cross(pair.flow())
    assert (status.stopped, status.lag) == ((), 0)
    assert state(pair.target.bootstrap, pair.remote(topic)) == {b"gone": b"old", b"other": b"1"}


def test_records_that_are_deleted_under_a_running_flow_stop_their_partition_and_no_other(pair: Pair) -> None:
    topic = pair.topic("overtaken", partitions=2)
    slow = dataclasses.replace(QUICK, fetch_bytes=4_000, fetch_partition_bytes=2_000, queue_bytes=4_000)
    write(pair.source.bootstrap, topic, numbered(20, partitions=2))
    with Crossing(pair.flow(throttle=40_000, tuning=slow)) as crossing:
        crossing.until_copied(20)
        write(pair.source.bootstrap, topic, numbered(1000, 20, 2, value=b"x" * 1000), batch_num_messages=2)
        delete_before(pair.source.bootstrap, topic, {0: 500})
        status = crossing.until(lambda now: bool(now.stopped))
        assert codes(status) == {(topic, 0): "GAP"}
        crossing.until_copied(status.records + 20)
    copied = [part for part, _, _ in read(pair.target.bootstrap, pair.remote(topic))]
    assert copied.count(0) < 500
    assert codes(cross(pair.flow())) == {(topic, 0): "GAP"}
    assert [part for part, _, _ in read(pair.target.bootstrap, pair.remote(topic))].count(1) == 510


def test_a_target_that_stamps_its_own_time_has_all_records_with_other_times(pair: Pair) -> None:
    topic = pair.topic("stamped")
    pair.target.create_topic(pair.remote(topic), 1, 1, {"message.timestamp.type": "LogAppendTime"})
    write(pair.source.bootstrap, topic, numbered(50, timestamp=1_600_000_000_000))
    status = cross(pair.flow())
    assert (status.stopped, status.lag) == ((), 0)
    assert read(pair.target.bootstrap, pair.remote(topic)) == read(pair.source.bootstrap, topic)
    verdict = pair.verdict(topic)
    assert (verdict.lost, verdict.duplicated, verdict.altered) == (0, 0, 50)


# --- clocks -----------------------------------------------------------------------------------


def test_records_from_the_future_stop_their_partition_and_the_setting_is_named(pair: Pair) -> None:
    """A producer's clock that is hours ahead: its records are on the source only if the source allows them."""
    topic = pair.topic("future", partitions=2, settings={"message.timestamp.after.max.ms": str(2**62)})
    pair.target.create_topic(pair.remote(topic), 2)
    ahead = int(time.time() * 1000) + 5 * HOUR_MS
    write(pair.source.bootstrap, topic, [*numbered(10, partitions=2)])
    write(pair.source.bootstrap, topic, [{"key": b"k", "value": b"v", "partition": 0, "timestamp": ahead}])
    status = cross(pair.flow())
    assert codes(status) == {(topic, 0): "TARGET_REFUSED"}
    (stopped,) = status.stopped
    assert "INVALID_TIMESTAMP" in stopped.error
    assert "after.max.ms" in refusals._HINTS[wire_codes.INVALID_TIMESTAMP]


class Skewed:
    """The `time` module of somebody whose clock is wrong; what measures durations is right."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def time(self) -> float:
        return time.time() + self._seconds

    def __getattr__(self, name: str) -> Callable[..., object]:
        return getattr(time, name)


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """All of ours that looks at the time of day is so far off."""
    clock = Skewed(seconds)
    for name, module in list(sys.modules.items()):
        if name.startswith(("isthmus.engine", "isthmus.wire")) and getattr(module, "time", None) is time:
            monkeypatch.setattr(module, "time", clock)
    assert vars(follower)["time"] is clock


@pytest.mark.parametrize("seconds", [-7 * 24 * 3600.0, 1800.0], ids=["a week behind", "half an hour ahead"])
def test_a_replicator_whose_clock_is_wrong_copies_every_record_once_and_owns_its_flow(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    set_clock(monkeypatch, seconds)
    topic = pair.topic("clocked", partitions=2)
    write(pair.source.bootstrap, topic, numbered(100, partitions=2))
    with Crossing(pair.flow()) as crossing:
        crossing.until_copied(100)
        with pytest.raises(RivalError):
            cross(pair.flow())  # the lease is aged by the target's clock
        write(pair.source.bootstrap, topic, numbered(100, 100, partitions=2))
        crossing.until_copied(200)
    assert cross(pair.flow()).stopped == ()
    pair.proven(topic, 200)


def test_a_replicator_whose_clock_the_target_refuses_says_so_and_goes_on_when_it_is_right(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers refuse records that are more than an hour ahead, so also our progress."""
    topic = pair.topic("clocked", partitions=2)
    write(pair.source.bootstrap, topic, numbered(100, partitions=2))
    with monkeypatch.context() as wrong:
        set_clock(wrong, 7 * 24 * 3600.0)
        with Crossing(pair.flow()) as crossing:
            crossing.until(lambda now: any("set the clock of this machine" in lane.error for lane in now.lanes))
    cross(pair.flow())
    pair.proven(topic, 100)
