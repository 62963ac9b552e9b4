"""What the doctor finds on real clusters beside rights (`test_rights`) and TLS (`test_security`): clocks and sizes."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.crossing import Crossing
from tests.integration.sources import Pair, wait_until

from isthmus.engine.checks import Check
from isthmus.engine.doctor import examine_flow
from isthmus.model import Flow, Sync

pytestmark = pytest.mark.integration

MEASURED = re.compile(r"brokers are ([\d.]+) s (ahead of|behind) this machine, within ([\d.]+) s")


def _found(flow: Flow, check: str, about: str, **options: bool) -> list[Check]:
    checks = asyncio.run(examine_flow(flow, **options))
    return [each for each in checks if (each.check, each.about) == (check, about)]


def test_the_clock_of_a_target_is_read_from_a_running_flow_or_measured_on_request(pair: Pair) -> None:
    """Lab and test have one clock: whatever is measured must have zero in it."""
    topic = pair.topic("stamped", settings={"message.timestamp.type": "LogAppendTime"})
    pair.write(topic, 10)
    flow = pair.flow()
    (before,) = _found(flow, "clock", "west")
    assert "no topic there tells the brokers' time" in before.text
    with Crossing(flow) as crossing:
        crossing.until_copied(10)
        wait_until(lambda: _is_zero(_found(flow, "clock", "west")), "a lease that is renewed while we look", 120)
    (after,) = _found(flow, "clock", "west")
    assert "the newest stamp there is" in after.text
    (source,) = _found(flow, "clock", pair.alias)
    assert "the newest stamp there is" in source.text
    assert _is_zero(_found(flow, "clock", "west", measure_clock=True))


def _is_zero(checks: list[Check]) -> bool:
    (check,) = checks
    found = MEASURED.search(check.text)
    # A busy machine widens the interval; two digits are shown of each.
    return found is not None and float(found[1]) <= float(found[3]) + 0.011


def test_a_target_that_takes_less_than_the_source_holds_is_told_also_before_its_topic_is_there(pair: Pair) -> None:
    topic = pair.topic("large", settings={"max.message.bytes": "5000000"})
    flow = pair.flow()
    (small,) = _found(flow, "sizes", "west")
    assert small.outcome.value == "warn"
    assert f"{pair.remote(topic)} (5000000 on the source, 1048588 there)" in small.text
    (follows,) = _found(pair.flow(sync=Sync(configs=True)), "sizes", "west")
    assert follows.outcome.value == "ok"
