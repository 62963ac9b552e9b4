"""The index of what landed where: its bytes, and every answer checked against a plain simulation."""

from __future__ import annotations

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isthmus.engine.offsets.index import Index, Where
from isthmus.engine.offsets.runs import Span, decode_end, decode_key, decode_value, encode_key, encode_value, table
from isthmus.model import TopicPartition
from isthmus.wire.journal import Journal
from isthmus.wire.records import Record

TP = TopicPartition("a.topic", 3)


class Log(Journal):
    """An index topic in memory: appended to and read as the real one."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    async def append(self, pairs, deadline_s=20):
        self.records += [Record(len(self.records) + i, 0, key, value) for i, (key, value) in enumerate(pairs)]

    async def beginning(self) -> int:
        return 0

    async def end(self, deadline_s: float = 20) -> int:
        return len(self.records)

    async def poll(self, start, wait_ms, purpose=""):
        return self.records[start:], len(self.records)

    async def read(self, start, end):
        return self.records[start:end]

    def compact(self) -> None:
        """The last record of each key stays, with its offset."""
        last = {record.key: record.offset for record in self.records}
        self.records = [
            record if last[record.key] == record.offset and record.value is not None else record._replace(key=b"")
            for record in self.records
        ]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    """What happened to a source partition, in order: records that landed, offsets without any, markers between."""
    steps = st.tuples(st.sampled_from(["land", "skip", "marker", "flush", "lose"]), st.integers(1, 40))
    return draw(st.lists(steps, max_size=60))


class Simulated:
    """Both logs as lists: source offset -> target offset of what landed, and which spans were put on record."""

    def __init__(self, history: list[tuple[str, int]]) -> None:
        self.landed: dict[int, int] = {}
        self.covered: set[int] = set()
        self.spans: list[Span] = []
        source = target = begun = 0
        runs: list[list[int]] = []
        for step, size in [*history, ("flush", 1)]:
            if step == "land":
                runs.append([source, target, size])
                self.landed |= {source + i: target + i for i in range(size)}
                source, target = source + size, target + size
            elif step == "skip":
                source += size
            elif step == "marker":
                target += size
            elif source > begun:
                if step == "flush":
                    self.spans.append(Span(TP, begun, source, table(runs)))
                    self.covered |= set(range(begun, source))
                runs, begun = [], source
        self.end = source

    def next(self, offset: int) -> int | None:
        return next((self.landed[at] for at in sorted(self.landed) if at >= offset), None)


async def _filled(simulated: Simulated, *, tidy: bool) -> Index:
    log = Log()
    index = Index(log)
    await index.write(simulated.spans)
    if tidy:
        await index.tidy({})
        log.compact()
        index = Index(log)
        await index.catch_up()
    return index


@given(histories(), st.booleans())
def test_an_answer_is_the_next_record_or_none_at_all(history: list[tuple[str, int]], tidy: bool) -> None:
    async def check() -> None:
        simulated = Simulated(history)
        index = await _filled(simulated, tidy=tidy)
        last = max(simulated.landed.values(), default=-1)
        for offset in range(simulated.end + 3):
            found = await index.translate(TP, offset)
            wanted = simulated.next(offset)
            if found.target >= 0 and wanted is not None:
                assert found.target == wanted, (offset, found)
            elif found.target >= 0:
                assert found.target == last + 1, (offset, found)
            known = await index.at_or_below(TP, offset)
            assert known is None or wanted is None or known[1] <= wanted
            whole = simulated.covered >= set(range(simulated.end))
            if whole and simulated.landed and offset <= simulated.end:
                assert found.target >= 0, (offset, found)

    asyncio.run(check())


def test_beyond_the_index_and_inside_a_hole_there_is_no_answer() -> None:
    async def check() -> None:
        index = Index(Log())
        assert await index.translate(TP, 0) == Where(why="hole")
        await index.write([Span(TP, 0, 10, table([[0, 100, 10]])), Span(TP, 20, 30, table([[20, 200, 10]]))])
        assert await index.translate(TP, 5) == Where(105)
        assert await index.translate(TP, 10) == Where(why="hole")
        assert await index.translate(TP, 15) == Where(why="hole")
        assert await index.translate(TP, 30) == Where(210)
        assert await index.translate(TP, 31) == Where(why="ahead")
        assert index.holes(TP, 0, 35) == [(10, 20), (30, 35)]
        assert await index.at_or_below(TP, 15) == (10, 110)
        assert await index.first_after(TP, 12) == (20, 200)
        assert await index.last(TP) == (29, 209)

    asyncio.run(check())


def test_what_was_copied_again_counts_instead_of_what_was_copied_before() -> None:
    async def check() -> None:
        index = Index(Log())
        await index.write([Span(TP, 0, 100, table([[0, 0, 100]])), Span(TP, 40, 60, table([[40, 500, 20]]))])
        found = [(await index.translate(TP, offset)).target for offset in (39, 40, 59, 60, 99)]
        assert found == [39, 500, 519, 60, 99]

    asyncio.run(check())


def test_small_spans_are_joined_and_outlived_ones_leave_but_not_the_last_run() -> None:
    async def check() -> None:
        log = Log()
        index = Index(log)
        await index.write(Span(TP, n * 10, n * 10 + 10, table([[n * 10, n * 11, 10]])) for n in range(100))
        await index.write([Span(TP, 1000, 1010, table([]))])
        await index.tidy({TP: 0})
        log.compact()
        assert len([record for record in log.records if record.key]) == 1
        assert [(await index.translate(TP, at)).target for at in (0, 9, 10, 999, 1005)] == [0, 9, 11, 1098, 1099]
        await index.tidy({TP: 1010})
        assert (await index.translate(TP, 1010)).target == 1099

    asyncio.run(check())


@given(st.text(max_size=50), st.integers(0, 2**31 - 1), st.integers(0, 2**62))
def test_keys_come_back(topic: str, partition: int, start: int) -> None:
    tp = TopicPartition(topic.encode("utf-8", "ignore").decode(), partition)
    assert decode_key(encode_key(tp, start)) == (tp, start)


@given(
    st.integers(0, 2**40),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**40), st.integers(1, 2**30)), max_size=50),
)
def test_spans_come_back(start: int, steps: list[tuple[int, int, int]]) -> None:
    source, target, runs = start, 0, []
    for gap, jump, length in steps:
        runs.append([source + gap, target + jump, length])
        source, target = source + gap + length, target + jump + length
    span = Span(TP, start, source, table(runs))
    value = encode_value(span)
    back = decode_value(TP, start, value)
    assert back is not None
    assert (back.start, back.end) == (span.start, span.end) == (start, decode_end(start, value))
    assert np.array_equal(back.runs, span.runs)


@given(st.binary(max_size=200))
def test_foreign_bytes_are_no_span_and_no_harm(data: bytes) -> None:
    decode_key(data)
    decode_end(0, data)
    span = decode_value(TP, 0, data)
    assert span is None or span.end >= 0
