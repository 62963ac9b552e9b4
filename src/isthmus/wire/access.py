"""Access rules (ACLs) of topics: read those of a cluster, add some, take away some. Returns plain values.

Only rules on topics are asked for. What must stay true: a rule is taken away only if it is named in full; adding one
that is there already is success, and so is taking away one that is not (the broker keeps rules as a set). Which rules
there ought to be is decided by others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from isthmus.errors import BrokerRefused
from isthmus.wire.admin import ask_controller, refusal
from isthmus.wire.cluster import Client

# Kafka's numbers, as far as we react to them.
ANY = 1
LITERAL = 3
DENY, ALLOW = 2, 3
ALL, READ, WRITE = 2, 3, 4

_TOPIC_RESOURCE = 2
_BATCH = 500
OPERATIONS = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}


class TopicAcl(NamedTuple):
    """One rule: whether a principal may do an operation on a topic, from a host."""

    topic: str
    principal: str
    host: str
    operation: int
    permission: int
    pattern: int = LITERAL

    def __str__(self) -> str:
        word = {DENY: "DENY", ALLOW: "ALLOW"}.get(self.permission, str(self.permission))
        operation = OPERATIONS.get(self.operation, str(self.operation))
        return f"{word} {operation} on topic {self.topic} for {self.principal} from {self.host}"


async def topic_acls(client: Client) -> frozenset[TopicAcl]:
    """Every rule on a topic. BrokerRefused with SECURITY_DISABLED where the cluster has no authorizer."""
    message = DescribeAclsRequest(
        resource_type_filter=_TOPIC_RESOURCE,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answer = await client.call_any(message, 3)  # version 0, before 2.0, knows literal rules only
    if answer.error_code:
        raise refusal(client, "access rules (ACLs) cannot be read", answer)
    return frozenset(
        TopicAcl(
            resource.resource_name, acl.principal, acl.host, acl.operation, acl.permission_type, resource.pattern_type
        )
        for resource in answer.resources
        for acl in resource.acls
    )


async def create_acls(client: Client, acls: Sequence[TopicAcl]) -> dict[TopicAcl, BrokerRefused]:
    """Add rules; returns those that were refused."""
    refused: dict[TopicAcl, BrokerRefused] = {}
    kind = CreateAclsRequest.AclCreation
    for start in range(0, len(acls), _BATCH):
        batch = acls[start : start + _BATCH]
        creations = [
            kind(
                resource_type=_TOPIC_RESOURCE,
                resource_name=acl.topic,
                resource_pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in batch
        ]
        answer = await ask_controller(client, CreateAclsRequest(creations=creations), 3, floor=1)
        for acl, result in zip(batch, answer.results, strict=True):
            if result.error_code:
                refused[acl] = refusal(client, f"{acl} cannot be added", result)
    return refused


async def delete_acls(client: Client, acls: Sequence[TopicAcl]) -> dict[TopicAcl, BrokerRefused]:
    """Take away exactly these rules; returns those that were refused."""
    refused: dict[TopicAcl, BrokerRefused] = {}
    kind = DeleteAclsRequest.DeleteAclsFilter
    for start in range(0, len(acls), _BATCH):
        batch = acls[start : start + _BATCH]
        filters = [
            kind(
                resource_type_filter=_TOPIC_RESOURCE,
                resource_name_filter=acl.topic,
                pattern_type_filter=acl.pattern,
                principal_filter=acl.principal,
                host_filter=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in batch
        ]
        answer = await ask_controller(client, DeleteAclsRequest(filters=filters), 3, floor=1)
        for acl, result in zip(batch, answer.filter_results, strict=True):
            if result.error_code:
                refused[acl] = refusal(client, f"{acl} cannot be taken away", result)
    return refused
