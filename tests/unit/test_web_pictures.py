"""What the page is sent: a picture with its change applied is the next picture, and nobody is looked for in vain."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.pages import MadeUp, health, made_up

from isthmus.errors import TargetError
from isthmus.observe.health import Ages, FlowHealth
from isthmus.observe.metrics import Looked
from isthmus.web import app
from isthmus.web.collector import Collector
from isthmus.web.pictures import COLUMNS, Pictures, less


def applied(picture: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """As the page does it."""
    flows = []
    for flow, news in zip(picture["flows"], change["flows"], strict=True):
        now = {**flow, **news.get("set", {})}
        if "all" in news:
            now |= {"rows": news["all"], "topics": news["topics"]}
        rows = [list(row) for row in now["rows"]]
        for number, *values in news.get("rows", []):
            rows[number][2:] = values
        points = [*now["points"], news["point"]] if "point" in news else now["points"]
        flows.append(now | {"rows": rows, "points": points})
    return {name: value for name, value in change.items() if name != "after"} | {"flows": flows}


def as_sent(value: Any) -> Any:
    return json.loads(json.dumps(value))


Turns = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 6)), min_size=2, max_size=6)


@given(Turns)
def test_a_picture_with_its_change_applied_is_the_next_picture(turns: list[tuple[int, int]]) -> None:
    pictures = Pictures()
    before = pictures.next(Looked(flows=[health(*turns[0])], lost=[]), {}, 1.0, {})
    for number, turn in enumerate(turns[1:], 2):
        now = pictures.next(Looked(flows=[health(*turn)], lost=[]), {}, float(number), {})
        change = now.since(before)
        assert change is not None
        assert applied(as_sent(before.whole()), as_sent(change)) == as_sent(now.whole())
        before = now


def test_a_picture_holds_what_the_status_command_tells() -> None:
    found = health(12, 3)
    (flow,) = as_sent(Pictures().next(Looked(flows=[found], lost=[]), {}, 1.0, {}).whole())["flows"]
    told = as_sent(found.as_json())
    for topic, partition, *values in flow.pop("rows"):
        row = {"topic": flow["topics"][topic], "partition": partition, **dict(zip(COLUMNS, values, strict=True))}
        assert row in told["partitions"]
    assert {name: flow[name] for name in told if name in flow} == {name: told[name] for name in told if name in flow}
    assert set(told) - set(flow) == {"partitions", "record_age", "latency"}
    assert flow["replicator"] == "replicator-east"


def test_little_is_sent_when_little_changed() -> None:
    still = health(1_000, 1)
    looks = [FlowHealth(**{name: getattr(still, name) for name in still.__slots__}) for _ in range(2)]
    pictures = Pictures()
    before, now = (pictures.next(Looked(flows=[each], lost=[]), {}, 1.0, {}) for each in looks)
    assert len(json.dumps(now.since(before))) < 1_000 < len(json.dumps(now.whole()))


def test_a_flow_that_cannot_be_seen_is_told_with_the_reason() -> None:
    error = TargetError("no way there", hint="look at the cable", code="UNREACHABLE")
    picture = Pictures().next(Looked(flows=[], lost=[("east->west", "west")]), {"east->west": error}, 1.0, {})
    (lost,) = picture.whole()["lost"]
    assert lost == {
        "flow": "east->west",
        "target": "west",
        "code": "UNREACHABLE",
        "error": "no way there",
        "hint": "look at the cable",
    }
    assert picture.since(Pictures().next(Looked(flows=[health(1, 1)], lost=[]), {}, 1.0, {})) is None


def test_latencies_are_those_of_the_last_seconds_unless_counters_went_back() -> None:
    earlier, later = Ages(bounds_ms=(1, 2), counts=(5, 0, 0)), Ages(bounds_ms=(1, 2), counts=(5, 7, 0))
    assert less(later, earlier).counts == (0, 7, 0)
    assert less(earlier, later) == earlier
    assert less(later, Ages()) == later


def test_clusters_are_looked_at_only_while_somebody_watches() -> None:
    looker = made_up()

    async def watch() -> tuple[list[str], int]:
        collector = Collector(looker)
        assert looker.looks == 0
        events = []
        pictures = collector.pictures()
        async for text in pictures:
            events.append(text.partition("\n")[0])
            if len(events) == 3:
                break
        await pictures.aclose()
        assert collector.viewers == 0
        assert collector._task is not None
        await asyncio.wait_for(collector._task, 60)  # ends by itself: nobody watches
        return events, looker.looks

    events, looks = asyncio.run(watch())
    assert events == ["retry: 2000", "event: whole", "event: change"]
    assert looker.looks == looks


def test_two_viewers_cost_one_look() -> None:
    looker = made_up()

    async def second(collector: Collector) -> str:
        async for text in collector.pictures():
            if text.startswith("event"):
                return text
        return ""

    async def both() -> tuple[str, str]:
        collector = Collector(looker)
        return await asyncio.wait_for(asyncio.gather(second(collector), second(collector)), 60)

    one, other = asyncio.run(both())
    assert one == other
    assert looker.looks == 1


def test_a_viewer_who_takes_nothing_is_dropped(monkeypatch: Any) -> None:
    monkeypatch.setattr(app, "_SLOW_S", 0.05)
    collector_of: list[Collector] = []

    async def never(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def silent() -> Any:
        await asyncio.Event().wait()

    async def serve() -> None:
        collector_of.append(collector := Collector(made_up()))
        await asyncio.wait_for(app._Stream(collector)({}, silent, never), 60)

    asyncio.run(serve())
    assert collector_of[0].viewers == 0


def test_a_look_that_fails_ends_nothing() -> None:
    def find(turn: int) -> Looked:
        if turn == 1:
            raise TimeoutError
        return Looked(flows=[health(1, turn)], lost=[])

    async def first() -> str:
        async for text in Collector(MadeUp(find)).pictures():
            if text.startswith("event"):
                return text
        return ""

    assert asyncio.run(asyncio.wait_for(first(), 60)).startswith("event: whole")
