"""A client of one cluster: where its brokers and leaders are, and requests to the right one.

Owns links by (node, purpose), metadata, coordinators and version choice. One instance belongs to one
event loop. It retries nothing that could write twice: `call` fails with BrokerUnreachable when a link
is lost, and the caller decides. Long polls need a purpose of their own, because a broker answers the
requests of one connection strictly in order.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from isthmus.errors import BrokerRefused, BrokerUnreachable, SecurityRefused, WireError
from isthmus.model import NO_ID, Cluster, TopicPartition
from isthmus.wire import codes
from isthmus.wire.dial import dial
from isthmus.wire.link import Answer, Link, Message, Offer
from isthmus.wire.unread import Unread

_REDIAL_PAUSE_S = 0.5


class PartitionInfo(NamedTuple):
    leader: int  # -1: none at the moment
    leader_epoch: int


class TopicInfo(NamedTuple):
    name: str
    topic_id: uuid.UUID
    partitions: dict[int, PartitionInfo]


class Client:
    """Requests to the brokers of one cluster."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = 30.0) -> None:
        self.cluster = cluster
        self.topics: dict[str, TopicInfo] = {}
        self.nodes: dict[int, tuple[str, int]] = {}
        self.controller = -1
        self.cluster_id = ""
        self.offer = Offer({}, {})
        self.generation = 0  # rises whenever `topics` may have changed
        self._timeout_s = timeout_s
        self._links: dict[tuple[int, str], asyncio.Task[Link]] = {}
        self._failed_at: dict[tuple[int, str], float] = {}
        self._coordinators: dict[str, int] = {}
        self._last = b""  # the answer about all topics that `topics` is

    async def start(self) -> None:
        """Reach the cluster through any bootstrap server; says all the reasons when none answers."""
        reasons: list[str] = []
        refusal: SecurityRefused | None = None
        for server in self.cluster.bootstrap:
            try:
                await self._bootstrap(server)
            except (BrokerUnreachable, ValueError) as error:
                refusal = refusal or (error if isinstance(error, SecurityRefused) else None)
                reasons.append(f"{server}: {error}")
            else:
                return
        if refusal is not None:
            raise refusal  # a broker that is there says more than others that are not
        raise BrokerUnreachable(
            f"no bootstrap server of cluster {self.cluster.alias} answers: " + "; ".join(reasons),
            hint="check the addresses, that the brokers run, and that this machine can reach them",
        )

    async def _bootstrap(self, server: str) -> None:
        host, _, port = server.strip().rpartition(":")
        link = await dial(self.cluster, host.strip("[]"), int(port), self._timeout_s)
        try:
            self.offer = link.offer
            self._learn(await link.send(MetadataRequest(topics=[]), link.offer.best(MetadataRequest.API_KEY, 12)))
        except BrokerUnreachable as error:
            raise self._login_wanted(error) from error
        finally:
            link.close()

    def _login_wanted(self, error: BrokerUnreachable) -> BrokerUnreachable:
        """A listener with SASL tells its versions to anybody, and hangs up at the first real request."""
        if self.cluster.security.login is not None or "closed" not in error.message:
            return error
        return SecurityRefused(
            "the broker hangs up at the first request, as one does that wants a login",
            where=error.where,
            hint="set security.protocol to SASL_SSL or SASL_PLAINTEXT, or use the port of a listener without SASL",
            code="SASL_NEEDED",
        )

    def close(self) -> None:
        for task in self._links.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()
            else:
                task.cancel()
        self._links.clear()

    # -- links ---------------------------------------------------------------------------------

    async def link(self, node: int, purpose: str = "") -> Link:
        """The live link to a node, dialled when there is none. One dial at a time per purpose."""
        key = (node, purpose)
        task = self._links.get(key)
        if task is None or (task.done() and self._is_dead(task)):
            if time.monotonic() - self._failed_at.get(key, 0.0) < _REDIAL_PAUSE_S:
                raise BrokerUnreachable("the last attempt failed just now", where=self._place(node))
            task = self._links[key] = asyncio.ensure_future(self._dial(node, key))
        return await asyncio.shield(task)

    async def _dial(self, node: int, key: tuple[int, str]) -> Link:
        if node not in self.nodes:
            raise BrokerUnreachable(f"broker {node} is not in the metadata", where=self.cluster.alias)
        host, port = self.nodes[node]
        try:
            link = await dial(self.cluster, host, port, self._timeout_s)
        except BrokerUnreachable:
            self._failed_at[key] = time.monotonic()
            raise
        self.offer = link.offer
        return link

    @staticmethod
    def _is_dead(task: asyncio.Task[Link]) -> bool:
        if task.cancelled() or task.exception() is not None:
            return True
        return task.result().lost is not None

    def _place(self, node: int) -> str:
        host, port = self.nodes.get(node, ("?", 0))
        return f"{self.cluster.alias} broker {node} at {host}:{port}"

    @property
    def requests(self) -> int:
        """Requests so far, over links that live."""
        return sum(task.result().sent for task in self._links.values() if task.done() and not self._is_dead(task))

    # -- requests ------------------------------------------------------------------------------

    async def call(
        self,
        node: int,
        message: Message,
        ceiling: int,
        *,
        floor: int = 0,
        purpose: str = "",
        timeout_s: float | None = None,
    ) -> Answer:
        """Send one request to a node at the best version within [floor, ceiling]."""
        link = await self.link(node, purpose)
        version = link.offer.best(message.API_KEY, ceiling, floor)
        if version < 0:
            raise WireError(
                f"the broker offers no {type(message).__name__} version in {floor}..{ceiling}",
                where=self._place(node),
                code="VERSION",
            )
        return await link.send(message, version, timeout_s)

    async def call_any(self, message: Message, ceiling: int, *, floor: int = 0) -> Answer:
        """Send one read-only request to any broker that answers; falls back to the bootstrap list."""
        for node in sorted(self.nodes, key=lambda n: (n, "") not in self._links):
            try:
                return await self.call(node, message, ceiling, floor=floor)
            except BrokerUnreachable:
                continue
        await self.start()
        node = next(iter(self.nodes))
        return await self.call(node, message, ceiling, floor=floor)

    # -- metadata ------------------------------------------------------------------------------

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        """Learn leaders of these topics (None: of all). Topics that vanished are forgotten."""
        names = None if topics is None else list(topics)
        if names is None or (names and self.offer.best(MetadataRequest.API_KEY, 12, 4) < 0):
            await self._refresh_all()  # a broker before 0.11 would create a topic that it is asked for by name
            return
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = await self.call_any(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12, floor=1)
        if wanted:
            self._last = b""  # what is known is not that answer any more
            self.generation += 1
        self._learn(answer)

    async def _refresh_all(self) -> None:
        """An answer that is the same as the last one costs a comparison, also of 10,000 partitions."""
        message = Unread(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        body: bytes = await self.call_any(message, 12, floor=1)
        if body == self._last:
            return
        answer = message.read(body)
        known, self.topics = self.topics, {}
        self._learn(answer, known)
        self._last = body
        self.generation += 1

    def _learn(self, answer: Answer, known: Mapping[str, TopicInfo] | None = None) -> None:
        """`known`: of topics that are listed, but cannot be told of just now."""
        self.nodes = {b.node_id: (b.host, b.port) for b in answer.brokers} or self.nodes
        self.controller = getattr(answer, "controller_id", -1)
        self.cluster_id = getattr(answer, "cluster_id", "") or self.cluster_id
        for topic in answer.topics:
            if topic.error_code in (codes.UNKNOWN_TOPIC, codes.UNKNOWN_TOPIC_ID):
                self.topics.pop(topic.name, None)
            elif topic.name is not None and (topic.error_code == codes.NONE or topic.partitions):
                self.topics[topic.name] = _topic_info(topic)
            elif known and topic.name in known:  # an error names no partitions: the topic has not lost them
                self.topics[topic.name] = known[topic.name]

    def leader(self, tp: TopicPartition) -> int:
        """The node that leads a partition as far as we know, or -1."""
        info = self.topics.get(tp.topic)
        partition = info.partitions.get(tp.partition) if info else None
        return partition.leader if partition else -1

    def topic_id(self, topic: str) -> uuid.UUID:
        info = self.topics.get(topic)
        return info.topic_id if info else NO_ID

    # -- coordinators --------------------------------------------------------------------------

    async def coordinator(self, transactional_id: str) -> int:
        """The node that coordinates a transactional id; remembered until `forget_coordinator`."""
        known = self._coordinators.get(transactional_id)
        if known is not None:
            return known
        message = FindCoordinatorRequest(key=transactional_id, key_type=1, coordinator_keys=[transactional_id])
        answer = await self.call_any(message, 5)
        found = answer.coordinators[0] if answer.API_VERSION >= 4 else answer
        if found.error_code:
            raise BrokerRefused(
                f"FindCoordinator answered {codes.name(found.error_code)}",
                found.error_code,
                where=f"cluster {self.cluster.alias}, transactional id {transactional_id}",
                hint=codes.advice(found.error_code),
            )
        self.nodes.setdefault(found.node_id, (found.host, found.port))
        self._coordinators[transactional_id] = found.node_id
        return int(found.node_id)

    def forget_coordinator(self, transactional_id: str) -> None:
        self._coordinators.pop(transactional_id, None)


def _topic_info(topic: Answer) -> TopicInfo:
    partitions = {
        p.partition_index: PartitionInfo(p.leader_id, getattr(p, "leader_epoch", -1)) for p in topic.partitions
    }
    return TopicInfo(topic.name, getattr(topic, "topic_id", None) or NO_ID, partitions)
