"""What this client may do on a cluster, asked of the brokers themselves; nothing is changed by asking.

Topics: brokers tell with their metadata which operations are allowed, also of topics that are not there yet (2.3 and
newer). The cluster: DescribeCluster, or the metadata of older brokers. Groups: DescribeGroups, of every broker in turn:
looking for a coordinator would make a cluster create its offsets topic. Transactional ids: no request tells, so a
transaction that cannot exist is ended; whether that is allowed is checked first, and then there is nothing to end.

What must stay true: None means that the broker does not tell, which is not the same as "nothing". Which rights a flow
needs is decided by the engine.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import EndTxnRequest

from isthmus.errors import BrokerUnreachable
from isthmus.wire import codes
from isthmus.wire.access import OPERATIONS
from isthmus.wire.cluster import Client
from isthmus.wire.link import Answer

_FIRST_TO_TELL = 8  # of Metadata
_LAST_WITH_CLUSTER = 10  # of Metadata: later ones leave the cluster's rights to DescribeCluster
_BATCH = 2_000
_GROUPS_AT_ONCE = 200
_GROUPS_CEILING, _GROUPS_FLOOR = 5, 3  # from 6 on, a group that is not there is an error; before 3, none is told
_NOBODY = -1  # a producer id that no producer has

Allowed = frozenset[str]


async def allowed_on_topics(client: Client, topics: Iterable[str]) -> dict[str, Allowed | None]:
    """Operations that are allowed on each topic, whether it exists or not."""
    names, found = sorted(set(topics)), dict[str, Allowed | None]()
    if client.offer.best(MetadataRequest.API_KEY, 12, _FIRST_TO_TELL) < 0:
        return dict.fromkeys(names)  # and one before 0.11 would create a topic that it is asked for by name
    for start in range(0, len(names), _BATCH):
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in names[start : start + _BATCH]]
        message = MetadataRequest(
            topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=True
        )
        answer = await client.call_any(message, 12, floor=_FIRST_TO_TELL)
        for topic in answer.topics:
            hidden = topic.error_code == codes.TOPIC_AUTHORIZATION_FAILED
            found[topic.name] = frozenset() if hidden else _operations(topic)
    return found


async def allowed_on_cluster(client: Client) -> Allowed | None:
    """Operations on the cluster itself. Without DESCRIBE a broker tells of none, whatever else is allowed."""
    if client.offer.best(DescribeClusterRequest.API_KEY, 0) >= 0:
        answer = await client.call_any(DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    elif client.offer.best(MetadataRequest.API_KEY, _LAST_WITH_CLUSTER, _FIRST_TO_TELL) >= 0:
        old = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
        answer = await client.call_any(old, _LAST_WITH_CLUSTER, floor=_FIRST_TO_TELL)
    else:
        return None
    return _operations(answer)


def _operations(told: Answer) -> Allowed | None:
    numbers = told.authorized_operations
    return None if numbers is None else frozenset(OPERATIONS[each] for each in numbers if each in OPERATIONS)


async def allowed_on_groups(client: Client, groups: Iterable[str]) -> dict[str, Allowed | None]:
    """Operations that are allowed on each group, whether it exists or not; None where its broker cannot tell now."""
    waiting, found = sorted(set(groups)), dict[str, Allowed | None]()
    for node in sorted(client.nodes) if waiting else ():
        try:
            found |= await _told_of_groups(client, node, waiting)
        except BrokerUnreachable:
            continue  # a start must not fail for one broker that is down
        waiting = [name for name in waiting if name not in found]  # others have another coordinator
    return found | dict.fromkeys(waiting)


async def _told_of_groups(client: Client, node: int, names: list[str]) -> dict[str, Allowed | None]:
    """What one broker says of groups that it looks after, or that we may not even see."""
    link, found = await client.link(node), dict[str, Allowed | None]()
    if link.offer.best(DescribeGroupsRequest.API_KEY, _GROUPS_CEILING, _GROUPS_FLOOR) < 0:
        return found
    for at in range(0, len(names), _GROUPS_AT_ONCE):
        wanted = names[at : at + _GROUPS_AT_ONCE]
        message = DescribeGroupsRequest(groups=wanted, include_authorized_operations=True)
        for group in (await client.call(node, message, _GROUPS_CEILING, floor=_GROUPS_FLOOR)).groups:
            if group.error_code == codes.GROUP_AUTHORIZATION_FAILED:
                found[group.group_id] = frozenset()
            elif group.error_code == codes.NONE:
                found[group.group_id] = _operations(group)
    return found


async def may_write_transactions(client: Client, transactional_id: str) -> Allowed | None:
    """WRITE on a transactional id, if it is allowed. Any broker tells, whether it is the coordinator or not."""
    message = EndTxnRequest(transactional_id=transactional_id, producer_id=_NOBODY, producer_epoch=0, committed=False)
    if client.offer.best(EndTxnRequest.API_KEY, 3) < 0:
        return None  # there are no transactions at all: told elsewhere
    answer = await client.call_any(message, 3)
    refused = answer.error_code == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return frozenset() if refused else frozenset({"WRITE"})
