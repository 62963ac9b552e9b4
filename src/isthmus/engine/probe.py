"""Tests a running flow with a topic made for it: does a topic appear, do partitions match, do events arrive?

The probe topic is created on the source, crosses by the flow that runs, and is removed on both sides, however the
tests end. What must stay true: nothing is created unless the flow would carry the topic, somebody drives it, and we
may remove what we make; no other topic is touched. Before it is deleted the topic is paused, so that no lane meets
a topic that is gone and stops. Content is compared by time, key, value and headers of every record, in order.
"""

from __future__ import annotations

import asyncio
import functools
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from isthmus.engine.offsets.align import read
from isthmus.engine.sides import clients, reach
from isthmus.engine.wishes import Wishing
from isthmus.errors import ConfigError, IsthmusError, SourceError, TargetError, WireError
from isthmus.mm2.filters import choose
from isthmus.mm2.policy import remote_topic
from isthmus.model import Flow, TopicPartition
from isthmus.wire.admin import NewTopic, create_topics, delete_topic, wait_for_topics
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import LATEST, READ_COMMITTED, settled_offsets
from isthmus.wire.journal import Journal
from isthmus.wire.rights import allowed_on_topics

STEM = "isthmus-check-"
_EVENTS = 10
_LANES_LET_GO_S = 60.0
_OURS = {"source": ("WRITE", "READ", "DELETE"), "target": ("READ", "DELETE")}


class Wanted(NamedTuple):
    """How to test. `patience_s` is for each thing that is waited for."""

    prefix: str = ""  # of the probe topic's name
    partitions: int = 4
    records: int = 1_000
    patience_s: float = 60.0


class Verdict(NamedTuple):
    """Of one test; `passed` None: it could not be made."""

    test: str
    passed: bool | None
    text: str
    figures: dict[str, Any]


class Checked(NamedTuple):
    flow: str
    topic: str
    driver: str
    verdicts: tuple[Verdict, ...]
    left: tuple[str, ...]  # what could not be removed

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)


async def check(flow: Flow, wanted: Wanted) -> Checked:
    """All three tests. IsthmusError when they cannot begin: then nothing was created."""
    topic = f"{wanted.prefix}{STEM}{uuid.uuid4().hex[:8]}"
    _refuse_unchosen(flow, wanted.prefix, topic)
    async with clients(flow) as (source, target):
        await reach(source, SourceError)
        await reach(target, TargetError)
        driver = await _driver(flow)
        probe = Probe(flow, source, target, topic, wanted)
        await probe.refuse_unremovable()
        try:
            verdicts = await probe.tests()
        except BaseException as error:
            left = await probe.remove()  # also after Ctrl-C, which comes as a cancellation
            if isinstance(error, IsthmusError) and left:
                error.hint = f"{error.hint}; {'; '.join(left)}".lstrip("; ")
            raise
        return Checked(flow.name, topic, driver, tuple(verdicts), tuple(await probe.remove()))


def _refuse_unchosen(flow: Flow, prefix: str, topic: str) -> None:
    if not choose(flow, [topic]):
        raise ConfigError(
            f"the flow would not carry the probe topic {topic}: its `topics` leave it out",
            where=f"flow {flow.name}",
            hint=f"add `{prefix}{STEM}.*` to its topics (`isthmus apply` puts that in force), or give the probe topic "
            "a name that they take, such as --prefix shop. (consumers that subscribe by pattern would see it, too)",
            code="PROBE_TOPIC",
        )


async def _driver(flow: Flow) -> str:
    async with Wishing(flow) as wishing:
        driver = await wishing.driver()
        if not driver:
            what = f"nobody runs {flow.name}: its lease is not renewed"
            raise TargetError(what, hint="start it with `isthmus run`, then check again", code="NOT_RUNNING")
        if wishing.paused().everything:
            raise TargetError(f"{flow.name} is paused", hint="`isthmus resume`, then check again", code="NOT_RUNNING")
        return driver


class Probe:
    """One probe topic, from its creation to its end."""

    def __init__(self, flow: Flow, source: Client, target: Client, topic: str, wanted: Wanted) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._topic, self._copy = topic, remote_topic(flow, topic)
        self._wanted = wanted
        self._made = False

    async def refuse_unremovable(self) -> None:
        for on, client, name in (("source", self._source, self._topic), ("target", self._target, self._copy)):
            allowed = (await allowed_on_topics(client, [name]))[name]
            lacking = [operation for operation in _OURS[on] if allowed is not None and operation not in allowed]
            if lacking:
                kind = SourceError if on == "source" else TargetError
                raise kind(
                    f"rights are missing on topic {name}: {', '.join(lacking)}",
                    where=f"cluster {client.cluster.alias}",
                    hint=f"grant them to whoever runs the check, on the prefix {name.partition(STEM)[0]}{STEM}",
                    code="RIGHTS",
                )

    # -- the tests -----------------------------------------------------------------------------

    async def tests(self) -> list[Verdict]:
        appeared = await self._topic_appears()
        if not appeared.passed:
            rest = "not made: the topic is not there"
            return [appeared, *(Verdict(test, None, rest, {}) for test in ("partition balance", "event propagation"))]
        return [appeared, await self._partitions_match(), await self._events_arrive()]

    async def _topic_appears(self) -> Verdict:
        count = self._wanted.partitions
        self._made = True  # from now on it may be there, whatever the answer is
        await create_topics(self._source, [NewTopic(self._topic, count, -1, {})])
        await wait_for_topics(self._source, [self._topic], self._wanted.patience_s, {self._topic: count})
        seconds = await self._until(self._copy_is_there)
        there = len(self._target.topics[self._copy].partitions) if self._copy in self._target.topics else 0
        figures = {"seconds": seconds, "partitions": there}
        if seconds is None:
            text = f"{self._copy} has {there} of {count} partitions after {self._wanted.patience_s:.0f} s"
            return Verdict("topic replication", False, text, figures)
        return Verdict("topic replication", True, f"{self._copy} was there after {seconds:.1f} s", figures)

    async def _copy_is_there(self) -> bool:
        await self._target.refresh([self._copy])
        copy = self._target.topics.get(self._copy)
        return copy is not None and len(copy.partitions) == self._wanted.partitions

    async def _partitions_match(self) -> Verdict:
        """Each partition gets a number of its own, so that no two could be mixed up."""
        least = max(1, self._wanted.records // self._wanted.partitions)
        sent = [least + number for number in range(self._wanted.partitions)]
        for number, count in enumerate(sent):
            pairs = [(b"%d-%d" % (number, n), b"record %d of partition %d" % (n, number)) for n in range(count)]
            await Journal(self._source, self._topic, number).append(pairs, self._wanted.patience_s)
        seen: list[int] = []

        async def all_there() -> bool:
            seen[:] = [await self._count(number) for number in range(self._wanted.partitions)]
            return all(here >= wanted for here, wanted in zip(seen, sent, strict=True))

        seconds = await self._until(all_there)
        rows = [{"partition": n, "source": sent[n], "target": seen[n]} for n in range(self._wanted.partitions)]
        counts = ", ".join(f"{row['partition']}: {row['target']}" for row in rows)
        text = f"records by partition {counts}" + ("" if seen == sent else f"; sent were {', '.join(map(str, sent))}")
        return Verdict("partition balance", seen == sent, text, {"seconds": seconds, "partitions": rows})

    async def _count(self, number: int) -> int:
        return len(await read(self._target, TopicPartition(self._copy, number), 0, 1 << 62, 1 << 30))

    async def _events_arrive(self) -> Verdict:
        """One after another, each as soon as the one before has arrived; then everything is compared."""
        took: list[float] = []
        for event in range(_EVENTS):
            number = event % self._wanted.partitions
            copy = TopicPartition(self._copy, number)
            end = (await settled_offsets(self._target, [copy], LATEST, READ_COMMITTED))[copy]
            await Journal(self._source, self._topic, number).append(
                [(b"event", b"%d" % event)], self._wanted.patience_s
            )
            seconds = await self._until(functools.partial(self._has_more, copy, end))
            if seconds is None:
                text = f"event {event + 1} of {_EVENTS} did not arrive within {self._wanted.patience_s:.0f} s"
                return Verdict("event propagation", False, text, {"seconds": took})
            took.append(seconds)
        differing = [number for number in range(self._wanted.partitions) if not await self._is_equal(number)]
        figures = {"seconds": took, "median": sorted(took)[len(took) // 2], "longest": max(took)}
        if differing:
            text = f"content differs in partitions {', '.join(map(str, differing))}"
            return Verdict("event propagation", False, text, figures | {"differing": differing})
        times = f"{figures['median']:.2f} s each (median), {max(took):.2f} s at most"
        text = f"{_EVENTS} events took {times}; every record is equal on both sides, in order and once"
        return Verdict("event propagation", True, text, figures | {"differing": []})

    async def _has_more(self, copy: TopicPartition, end: int) -> bool:
        return len(await read(self._target, copy, end, 1 << 62, 1)) > 0

    async def _is_equal(self, number: int) -> bool:
        here = await read(self._source, TopicPartition(self._topic, number), 0, 1 << 62, 1 << 30)
        there = await read(self._target, TopicPartition(self._copy, number), 0, 1 << 62, 1 << 30)
        return here.prints == there.prints

    async def _until(self, happened: Callable[[], Awaitable[bool]]) -> float | None:
        """Seconds until it was so; None: not within our patience."""
        began = time.monotonic()
        while time.monotonic() - began < self._wanted.patience_s:
            try:
                if await happened():
                    return round(time.monotonic() - began, 3)
            except WireError:
                await asyncio.sleep(0.5)  # a topic that is new has no leader for a moment
            await asyncio.sleep(0.02)
        return None

    # -- its end -------------------------------------------------------------------------------

    async def remove(self) -> list[str]:
        """Delete the topic on both sides; says what is left, and never raises."""
        if not self._made:
            return []
        await self._tried(self._let_go())
        left = []
        if not await self._tried(self._delete(self._source, self._topic)):
            left.append(f"topic {self._topic} is left on {self._flow.source.alias}")
        if not await self._tried(self._delete_copy()):
            left.append(f"topic {self._copy} is left on {self._flow.target.alias}")
        # Also after a pause that was refused: the wish stands in the control topic, and would keep later runs waiting.
        if not await self._tried(self._resume()):
            left.append(f"{self._topic} is left paused (`isthmus resume --topic {self._topic}`)")
        return left

    @staticmethod
    async def _tried(work: Awaitable[None]) -> bool:
        try:
            await work
        except IsthmusError:
            return False
        return True

    async def _let_go(self) -> None:
        """A lane that meets a topic which is gone stops its partition; a paused one has left its lane."""
        async with Wishing(self._flow) as wishing:
            await wishing.pause(frozenset({self._topic}))
            await wishing.until_left(self._topic, _LANES_LET_GO_S)

    async def _delete(self, client: Client, topic: str) -> None:
        await delete_topic(client, topic)
        until = time.monotonic() + self._wanted.patience_s
        while time.monotonic() < until:
            await client.refresh([topic])
            if topic not in client.topics:
                return
            await asyncio.sleep(0.1)

    async def _delete_copy(self) -> None:
        """Not before the driver has looked at the source again, as it does at every wish: it might be creating the copy
        just now, or would take a copy that is gone, while its topic is not, for a loss."""
        await self._tried(self._ask_again())
        await self._delete(self._target, self._copy)

    async def _ask_again(self) -> None:
        async with Wishing(self._flow) as wishing:
            await wishing.pause(frozenset({self._topic}))

    async def _resume(self) -> None:
        async with Wishing(self._flow) as wishing:
            # Forgotten first: a topic that is on record, not paused and not there has stopped.
            await wishing.forget(self._topic)
            await wishing.resume(frozenset({self._topic}))
