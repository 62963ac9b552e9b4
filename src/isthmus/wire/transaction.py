"""The life of a transactional id: fence, add partitions, end. Both transaction protocols.

TV2 (finalized feature transaction.version >= 2): the broker adds partitions by itself, every end moves
the epoch, sequences restart at 0 with each transaction, and EndTxn may be repeated: its answer says what
happened. TV1: AddPartitionsToTxn first, the epoch stays, sequences run on, and EndTxn is sent once; a lost
answer makes the order void, because a late duplicate would commit half of the next transaction.
Version pairs are pinned exactly (rule R3).

What must stay true: `fence` returns only after the coordinator said *success*, which means that all
markers of an earlier transaction are in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from isthmus.errors import BrokerRefused, BrokerUnreachable, OrderVoid, TargetError, WireError
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.cluster import Client
from isthmus.wire.link import Answer, Message

SECOND_PROTOCOL_FEATURE = "transaction.version"
_PAUSE_S = 0.02
_PURPOSE = "coordinator"  # of a connection
_UNKNOWN = frozenset({codes.NETWORK_EXCEPTION, codes.REQUEST_TIMED_OUT})  # whether it was done
_UNKNOWN_TOPIC_S, _COORDINATOR_S = 5.0, 30.0
# Answers after which the same is asked again. A coordinator that has no producer id at hand says that it timed out
# (2.8 to 3.0), or that it is loading.
FENCED_AGAIN = codes.MOVING | codes.COORDINATOR_MOVING | {codes.CONCURRENT_TRANSACTIONS}
ADDED_AGAIN = codes.COORDINATOR_MOVING | {
    codes.CONCURRENT_TRANSACTIONS,
    codes.NETWORK_EXCEPTION,
    codes.UNKNOWN_TOPIC,
}
ENDED_AGAIN = codes.COORDINATOR_MOVING | _UNKNOWN | {codes.CONCURRENT_TRANSACTIONS}
LISTED_AGAIN = codes.ASKED_AGAIN | codes.COORDINATOR_MOVING
VOIDED = codes.VOID | _UNKNOWN | {codes.INVALID_TXN_STATE, codes.TRANSACTION_ABORTABLE}


class Identity(NamedTuple):
    """Who writes: a transactional id with the producer id and epoch that are valid now."""

    transactional_id: str
    producer_id: int
    epoch: int


def speaks_second_protocol(client: Client) -> bool:
    """Decided by the finalized feature, never by what versions a broker could speak."""
    return client.offer.features.get(SECOND_PROTOCOL_FEATURE, 0) >= 2


async def fence(
    client: Client,
    transactional_id: str,
    timeout_ms: int,
    deadline_s: float,
    waiting: Callable[[str], None] = lambda _: None,
    *,
    markers_s: float = 0.0,
) -> Identity:
    """A true fence: InitProducerId without id and epoch, repeated until it *succeeds*.

    Markers of an earlier transaction may be waited for longer than anything else (`markers_s`): thousands of them
    on a busy cluster take minutes, and they do come.
    """
    began, pause_s = time.monotonic(), _PAUSE_S
    message = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )
    while True:
        try:
            code, answer = await _ask_coordinator(client, transactional_id, message, 4)
        except BrokerRefused as error:
            raise refused_transaction(client, transactional_id, error.kafka_code, "FindCoordinator") from error
        if code == codes.NONE and answer is not None:
            return Identity(transactional_id, answer.producer_id, answer.producer_epoch)
        if code not in FENCED_AGAIN:
            raise refused_transaction(client, transactional_id, code)
        pending = code == codes.CONCURRENT_TRANSACTIONS
        if time.monotonic() - began > (max(deadline_s, markers_s) if pending else deadline_s):
            raise refused_transaction(client, transactional_id, code)
        if pending:
            waiting(transactional_id)
        await asyncio.sleep(pause_s if pending else 0.2)
        pause_s = min(0.5, pause_s * 1.2)  # a broker that is busy with markers is not asked fifty times a second


def refused_transaction(
    client: Client, transactional_id: str, code: int, request: str = "InitProducerId"
) -> TargetError:
    where = f"cluster {client.cluster.alias}, transactional id {transactional_id}"
    hint = codes.advice(code, "IDEMPOTENT_WRITE")
    if code in FENCED_AGAIN - {codes.CONCURRENT_TRANSACTIONS}:
        hint = (
            "the transaction log has no usable coordinator: on a small cluster lower "
            "transaction.state.log.replication.factor and transaction.state.log.min.isr to what it can hold"
        )
    elif code == codes.CONCURRENT_TRANSACTIONS:
        hint = (
            "markers of an earlier transaction are still to be written: a target partition has no leader, or the "
            "cluster is too busy; start again when it has calmed down, nothing is lost"
        )
    elif code == codes.INVALID_TRANSACTION_TIMEOUT:
        hint = (
            "lower tuning.transaction_timeout_ms (of a sink: kafka.transaction.timeout.ms) below the broker's "
            "transaction.max.timeout.ms"
        )
    what = f"the target cannot do transactions: {request} answered {codes.name(code)}"
    return TargetError(what, where=where, hint=hint, code="TRANSACTIONS")


async def add_partitions(client: Client, who: Identity, partitions: Iterable[TopicPartition]) -> None:
    """TV1 only: make partitions part of the transaction before the first Produce to them."""
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    topics = [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=numbers)
        for name, numbers in by_topic.items()
    ]
    message = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=who.transactional_id,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=topics,
    )
    begun = time.monotonic()
    while True:
        code, answer = await _ask_coordinator(client, who.transactional_id, message, 3)
        if answer is not None:
            code = _worst(answer)
        if code == codes.NONE:
            return
        # A topic that stays unknown was deleted; a coordinator may take longer to come back.
        patience_s = _UNKNOWN_TOPIC_S if code == codes.UNKNOWN_TOPIC else _COORDINATOR_S
        if code not in ADDED_AGAIN or time.monotonic() - begun > patience_s:
            raise void_or_refused(client, code, "AddPartitionsToTxn", who)
        await asyncio.sleep(_PAUSE_S)


def _worst(answer: Answer) -> int:
    found = [
        result.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    ]
    # "not attempted" (55) says only that another partition failed: report that one instead.
    return next((c for c in found if c not in (0, 55)), next((c for c in found if c), 0))


async def end(
    client: Client, who: Identity, *, commit: bool, second_protocol: bool, deadline_s: float = 30
) -> Identity:
    """Commit or abort; returns the identity for this id's next transaction."""
    message = EndTxnRequest(
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        committed=commit,
    )
    deadline = time.monotonic() + deadline_s
    while True:
        version = 5 if second_protocol else 3
        code, answer = await _ask_coordinator(
            client, who.transactional_id, message, version, floor=version if second_protocol else 0
        )
        if code == codes.NONE and answer is not None:
            if second_protocol:
                return Identity(who.transactional_id, answer.producer_id, answer.producer_epoch)
            return who
        if code in _UNKNOWN and not second_protocol:
            raise OrderVoid("the answer to EndTxn was lost: the outcome is unknown", where=who.transactional_id)
        if code not in ENDED_AGAIN or time.monotonic() > deadline:
            raise void_or_refused(client, code, "EndTxn", who)
        await asyncio.sleep(_PAUSE_S if code == codes.CONCURRENT_TRANSACTIONS else 0.1)


def void_or_refused(client: Client, code: int, what: str, who: Identity) -> WireError:
    """47, 49, 90: the order is void. 48: the coordinator aborted it by timeout, 120: it may only be aborted, so it is
    void as well; and so it is when nobody knows."""
    where = f"cluster {client.cluster.alias}, transactional id {who.transactional_id}"
    if code in VOIDED:
        return OrderVoid(f"{what} answered {codes.name(code)}", where=where)
    hint = codes.advice(code, "WRITE")
    return BrokerRefused(f"{what} answered {codes.name(code)}", code, where=where, hint=hint)


async def _ask_coordinator(
    client: Client, transactional_id: str, message: Message, ceiling: int, floor: int = 0
) -> tuple[int, Answer | None]:
    """One question to the coordinator. A lost link comes back as NETWORK_EXCEPTION: outcome unknown."""
    try:
        node = await client.coordinator(transactional_id)
        answer = await client.call(node, message, ceiling, floor=floor, purpose=_PURPOSE)
    except BrokerUnreachable:
        client.forget_coordinator(transactional_id)
        return codes.NETWORK_EXCEPTION, None
    except BrokerRefused as error:  # of looking for the coordinator: nothing was asked of it yet
        if error.kafka_code not in codes.COORDINATOR_MOVING | codes.MOVING | {codes.UNKNOWN_SERVER}:
            raise
        return codes.COORDINATOR_NOT_AVAILABLE, None
    code = getattr(answer, "error_code", codes.NONE)
    if code in codes.COORDINATOR_MOVING:
        client.forget_coordinator(transactional_id)
    return code, answer


async def reach_coordinator(client: Client, transactional_id: str) -> None:
    """Have the connection that `end` will ask for."""
    await client.link(await client.coordinator(transactional_id), _PURPOSE)


async def list_transactional_ids(client: Client, prefix: str) -> set[str]:
    """Transactional ids known to the cluster that begin so; empty where brokers are older than 3.0."""
    found: set[str] = set()
    for node in list(client.nodes):
        answer = await _listed(client, node)
        states = () if answer is None else answer.transaction_states
        found |= {s.transactional_id for s in states if s.transactional_id.startswith(prefix)}
    return found


async def _listed(client: Client, node: int) -> Answer | None:
    """What one coordinator knows; one that still loads its log knows too little, and says so."""
    until = time.monotonic() + _COORDINATOR_S
    while True:
        link = await client.link(node)
        version = link.offer.best(ListTransactionsRequest.API_KEY, 1)
        if version < 0:
            return None
        answer = await link.send(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), version)
        code = answer.error_code
        if code == codes.NONE:
            return answer
        if code not in LISTED_AGAIN or time.monotonic() > until:
            what, where = f"ListTransactions answered {codes.name(code)}", f"cluster {client.cluster.alias}"
            raise BrokerRefused(what, code, where=where, hint=codes.advice(code))
        await asyncio.sleep(0.2)


async def pending_partitions(client: Client, transactional_id: str) -> list[TopicPartition]:
    """Partitions whose markers are still missing: what a fence waits for (3.0 and newer)."""
    message = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    _, answer = await _ask_coordinator(client, transactional_id, message, 0)
    states = answer.transaction_states if answer is not None else ()
    return [
        TopicPartition(topic.topic, number) for state in states for topic in state.topics for number in topic.partitions
    ]
