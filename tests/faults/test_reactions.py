"""Every error code, to every request that a flow makes beside Fetch and Produce of records: one reaction to each.

Each request is made of real brokers, once for each code, which a scripted door answers to the first of them. What comes
of it is what the table says (`reactions`), and so does the page. `test_error_codes.py` has the records themselves,
`test_request_codes.py` whole flows.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest
from tests.faults.reactions import EVERY_CODE, row_of
from tests.faults.scripted import (
    ADD,
    CONFIGS,
    CREATE,
    END,
    FETCH,
    FIND,
    INIT,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    PRODUCE,
    Script,
)
from tests.faults.staged import Stage, staged
from tests.integration.command import unique

from isthmus.engine.ledger import Ledger
from isthmus.errors import IsthmusError, OrderVoid
from isthmus.lab import ClusterSpec
from isthmus.model import TopicPartition
from isthmus.wire.admin import NewTopic, create_topics, wait_for_topics
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import LATEST, settled_offsets
from isthmus.wire.journal import Journal
from isthmus.wire.settings import describe_settings
from isthmus.wire.transaction import add_partitions, end, fence, list_transactional_ids

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(300)]

Ask = Callable[[Client, int], Awaitable[object]]  # the number is that of the code
LOG = "codes"  # a topic with a partition for each code


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    first = ClusterSpec(name="first", features={"transaction.version": 1})
    with staged(ClusterSpec(name="west"), first) as found:
        asyncio.run(_make_log(found))
        yield found


async def _make_log(stage: Stage) -> None:
    client = Client(stage.cluster("west"))
    await client.start()
    await create_topics(client, [NewTopic(LOG, len(EVERY_CODE), 1, {})])
    await wait_for_topics(client, [LOG])
    for number in range(len(EVERY_CODE)):
        await Journal(client, LOG, number).append([(b"key", b"value")])
    client.close()


@pytest.fixture(autouse=True)
def as_usual(stage: Stage) -> Iterator[None]:
    yield
    stage.calm()


def to_the_first(api: int, answers: Sequence[int] = EVERY_CODE) -> Script:
    """The code at the number that a name ends in, or at the partition's; once for each."""
    told: set[int] = set()

    def script(asked: int, name: str, partition: int) -> int:
        number = partition if partition >= 0 else int((re.findall(r"\d+$", name) or [-1])[0])
        if asked != api or number < 0 or number in told:
            return 0
        told.add(number)
        return answers[number]

    return script


def outcomes(stage: Stage, cluster: str, api: int, ask: Ask) -> dict[int, IsthmusError | None]:
    """What each code led to; None: it was asked again, and went well."""
    return asyncio.run(_outcomes(stage, cluster, api, ask))


async def _outcomes(stage: Stage, cluster: str, api: int, ask: Ask) -> dict[int, IsthmusError | None]:
    client = Client(stage.cluster(cluster))
    await client.start()
    await client.refresh(None)
    stage.doors[cluster].script = to_the_first(api)
    try:
        asked = [asyncio.ensure_future(ask(client, number)) for number in range(len(EVERY_CODE))]
        found = await asyncio.gather(*asked, return_exceptions=True)
    finally:
        client.close()
    return {code: _error(found[number]) for number, code in enumerate(EVERY_CODE)}


def _error(found: object) -> IsthmusError | None:
    if isinstance(found, BaseException):
        assert isinstance(found, IsthmusError), repr(found)
        return found
    return None


def as_the_row_says(request: str, found: dict[int, IsthmusError | None], cluster: str = "west") -> None:
    row, word = row_of(request), request.split(",")[0].split()[0]
    assert {code for code, error in found.items() if error is None} == set(row.again)
    assert {code for code, error in found.items() if isinstance(error, OrderVoid)} == set(row.void)
    for code, error in found.items():
        if error is not None and code not in row.void:
            assert f"({code})" in str(error)
            assert (word in str(error), cluster in str(error), bool(error.hint)) == (True, True, True), error


def test_each_answer_to_a_fence(stage: Stage) -> None:
    name = unique("fence")

    def ask(client: Client, number: int) -> Awaitable[object]:
        return fence(client, f"{name}-{number}", 60_000, 30)

    as_the_row_says("InitProducerId", outcomes(stage, "west", INIT, ask))


def test_each_answer_to_a_look_for_the_coordinator(stage: Stage) -> None:
    name = unique("find")

    def ask(client: Client, number: int) -> Awaitable[object]:
        return fence(client, f"{name}-{number}", 60_000, 30)

    as_the_row_says("FindCoordinator", outcomes(stage, "west", FIND, ask))


def test_each_answer_to_adding_partitions_under_the_first_protocol(stage: Stage) -> None:
    name, topic = unique("add"), unique("t")
    stage.lab["first"].create_topic(topic, 1)

    async def ask(client: Client, number: int) -> None:
        who = await fence(client, f"{name}-{number}", 60_000, 30)
        await add_partitions(client, who, [TopicPartition(topic, 0)])

    as_the_row_says("AddPartitionsToTxn", outcomes(stage, "first", ADD, ask), "first")


@pytest.mark.parametrize(("cluster", "words"), [("west", "second protocol"), ("first", "first protocol")])
def test_each_answer_to_the_end_of_a_transaction(stage: Stage, cluster: str, words: str) -> None:
    name, topic, second = unique("end"), unique("t"), cluster == "west"
    stage.lab[cluster].create_topic(topic, 1)

    async def ask(client: Client, number: int) -> None:
        who = await fence(client, f"{name}-{number}", 60_000, 30)
        if not second:
            await add_partitions(client, who, [TopicPartition(topic, 0)])
        await end(client, who, commit=False, second_protocol=second)

    as_the_row_says(f"EndTxn, {words}", outcomes(stage, cluster, END, ask), cluster)


def test_each_answer_to_a_question_for_an_end(stage: Stage) -> None:
    def ask(client: Client, number: int) -> Awaitable[object]:
        return settled_offsets(client, [TopicPartition(LOG, number)], LATEST)

    as_the_row_says("ListOffsets of the target", outcomes(stage, "west", LIST_OFFSETS, ask))


def test_each_answer_to_a_read_of_a_log(stage: Stage) -> None:
    def ask(client: Client, number: int) -> Awaitable[object]:
        return Journal(client, LOG, number).read(0, 1)

    as_the_row_says("Fetch of a control topic", outcomes(stage, "west", FETCH, ask))


def test_each_answer_to_an_append(stage: Stage) -> None:
    def ask(client: Client, number: int) -> Awaitable[object]:
        return Journal(client, LOG, number).append([(b"key", b"value")])

    as_the_row_says("Produce to a control topic", outcomes(stage, "west", PRODUCE, ask))


def test_each_answer_to_a_read_of_progress(stage: Stage) -> None:
    async def ask(client: Client, number: int) -> None:
        ledger = Ledger(client, LOG, "east", "connector")
        await ledger.open(None)
        ledger._scans = {number: ledger._scans[number]}  # each code has its own partition
        await ledger.advance()

    as_the_row_says("Fetch of progress", outcomes(stage, "west", FETCH, ask))


def test_each_answer_to_the_creation_of_a_topic(stage: Stage) -> None:
    name = unique("new")

    def ask(client: Client, number: int) -> Awaitable[object]:
        return create_topics(client, [NewTopic(f"{name}-{number}", 1, 1, {})], validate_only=True)

    found = outcomes(stage, "west", CREATE, ask)
    assert {code for code, error in found.items() if error is None} == {*row_of("CreateTopics").again, 36}
    assert all(error.hint and "west" in str(error) for error in found.values() if error is not None)


def test_each_answer_to_a_question_for_settings(stage: Stage) -> None:
    name = unique("set")

    async def ask(client: Client, number: int) -> None:
        for error in (await describe_settings(client, [f"{name}-{number}"])).refused.values():
            raise error

    found = outcomes(stage, "west", CONFIGS, ask)
    assert all(error is not None and f"({code})" in str(error) for code, error in found.items())


def test_each_answer_to_a_question_for_transactional_ids(stage: Stage) -> None:
    """One broker has one answer to it, so codes come one after the other."""
    left: list[int] = []
    stage.west.script = lambda api, *_: left.pop() if api == LIST_TRANSACTIONS and left else 0
    found = asyncio.run(_one_by_one(stage, left))
    as_the_row_says("ListTransactions", found)


async def _one_by_one(stage: Stage, left: list[int]) -> dict[int, IsthmusError | None]:
    client = Client(stage.cluster("west"))
    await client.start()
    found: dict[int, IsthmusError | None] = {}
    for code in EVERY_CODE:
        left.append(code)
        (result,) = await asyncio.gather(list_transactional_ids(client, "no"), return_exceptions=True)
        found[code] = _error(result)
    client.close()
    return found
