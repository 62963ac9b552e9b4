"""The property names of MirrorMaker 2 and Kafka Connect, and what Isthmus makes of each.

Owns three sets: names that are USED, prefixes of client SECURITY settings that are passed on, and names that
are KNOWN but have no effect yet, each with the reason that the user is told. A name in none of them is
unknown, most likely a slip. Taken from MirrorMaker 2's own definitions (Kafka 4.x) and the older spellings
that files in the wild still have. No values are read here.
"""

from __future__ import annotations

USED = frozenset(
    {
        "enabled",
        "topics",
        "topics.whitelist",
        "topics.exclude",
        "topics.blacklist",
        "replication.factor",
        "offset.storage.replication.factor",
        "offset.storage.partitions",
        "tasks.max",
        "replication.policy.class",
        "replication.policy.separator",
        "refresh.topics.interval.seconds",
    }
)
CLUSTER_ONLY = frozenset({"bootstrap.servers"})
TOP_ONLY = frozenset({"clusters"})

SECURITY = ("security.", "sasl.", "ssl.")

_ALWAYS = "delivery is exactly-once always"
_NO_CONNECT = "there is no Kafka Connect worker here"
_OWN_CLIENT = "Isthmus has its own client and picks this itself"
_GROUPS = "consumer groups are not synchronised yet"
_SYNCS = "offset syncs are not written yet"
_CHECKPOINTS = "checkpoints are not written yet"
_HEARTBEATS = "heartbeats are not written yet"
_CONFIGS = "topic configurations are not synchronised yet"
_ACLS = "access rules are not synchronised yet"
_FILTERS = "filters of one's own cannot be loaded"
_RUNS = "Spark runs the work"

KNOWN: dict[str, str] = {
    "exactly.once.source.support": _ALWAYS,
    "transaction.boundary": _ALWAYS,
    "exactly.once.support": _ALWAYS,
    "offset.flush.interval.ms": "progress is part of each transaction; see `tuning.commit_interval_ms`",
    "offset.flush.timeout.ms": "progress is part of each transaction",
    "groups": _GROUPS,
    "groups.exclude": _GROUPS,
    "groups.blacklist": _GROUPS,
    "groups.whitelist": _GROUPS,
    "group.filter.class": _FILTERS,
    "refresh.groups.enabled": _GROUPS,
    "refresh.groups.interval.seconds": _GROUPS,
    "sync.group.offsets.enabled": _GROUPS,
    "sync.group.offsets.interval.seconds": _GROUPS,
    "emit.offset-syncs.enabled": _SYNCS,
    "offset.lag.max": _SYNCS,
    "offset-syncs.topic.location": _SYNCS,
    "offset-syncs.topic.replication.factor": _SYNCS,
    "emit.checkpoints.enabled": _CHECKPOINTS,
    "emit.checkpoints.interval.seconds": _CHECKPOINTS,
    "checkpoints.topic.replication.factor": _CHECKPOINTS,
    "emit.heartbeats.enabled": _HEARTBEATS,
    "emit.heartbeats.interval.seconds": _HEARTBEATS,
    "heartbeats.topic.replication.factor": _HEARTBEATS,
    "heartbeats.replication.enabled": "the topic `heartbeats` is carried if `topics` matches it",
    "sync.topic.configs.enabled": _CONFIGS,
    "sync.topic.configs.interval.seconds": _CONFIGS,
    "config.properties.exclude": _CONFIGS,
    "config.properties.blacklist": _CONFIGS,
    "config.property.filter.class": _FILTERS,
    "use.defaults.from": _CONFIGS,
    "use.incremental.alter.configs": _CONFIGS,
    "sync.topic.acls.enabled": _ACLS,
    "sync.topic.acls.interval.seconds": _ACLS,
    "topic.filter.class": _FILTERS,
    "refresh.topics.enabled": "new topics are always noticed",
    "replication.policy.internal.topic.separator.enabled": _SYNCS,
    "consumer.poll.timeout.ms": _OWN_CLIENT,
    "admin.timeout.ms": _OWN_CLIENT,
    "admin.timeout": _OWN_CLIENT,
    "forwarding.admin.class": _OWN_CLIENT,
    "source.cluster.alias": "the flow's name says it",
    "target.cluster.alias": "the flow's name says it",
    "add.source.alias.to.metrics": "metrics always name the source",
    "metric.names.formats": "metrics have names of their own",
    "name": _NO_CONNECT,
    "connector.class": _NO_CONNECT,
    "group.id": _NO_CONNECT,
    "client.id": _OWN_CLIENT,
    "client.rack": _OWN_CLIENT,
    "client.dns.lookup": _OWN_CLIENT,
    "max.poll.records": _OWN_CLIENT,
    "enable.metrics.push": _OWN_CLIENT,
    "internal.key.converter": _NO_CONNECT,
    "internal.value.converter": _NO_CONNECT,
    "key.converter": "records are copied byte for byte",
    "value.converter": "records are copied byte for byte",
    "header.converter": "records are copied byte for byte",
    "transforms": "records are copied byte for byte",
    "predicates": "records are copied byte for byte",
    "config.providers": "`${...}` in values is passed on as it stands",
    "dedicated.mode.enable.internal.rest": _NO_CONNECT,
    "offset.storage.topic": "progress is kept in MirrorMaker 2's default topic",
    "config.storage.topic": _NO_CONNECT,
    "config.storage.replication.factor": _NO_CONNECT,
    "status.storage.topic": _NO_CONNECT,
    "status.storage.partitions": _NO_CONNECT,
    "status.storage.replication.factor": _NO_CONNECT,
    "scheduled.rebalance.max.delay.ms": _RUNS,
    "rebalance.timeout.ms": _RUNS,
    "session.timeout.ms": _RUNS,
    "heartbeat.interval.ms": _RUNS,
    "worker.sync.timeout.ms": _RUNS,
    "worker.unsync.backoff.ms": _RUNS,
    "connect.protocol": _RUNS,
    "task.shutdown.graceful.timeout.ms": _RUNS,
    "connector.client.config.override.policy": _NO_CONNECT,
    "topic.creation.enable": "missing topics are always created",
    "topic.tracking.enable": _NO_CONNECT,
    "topic.tracking.allow.reset": _NO_CONNECT,
    "plugin.path": _NO_CONNECT,
    "plugin.discovery": _NO_CONNECT,
    "listeners": _NO_CONNECT,
    "rest.port": _NO_CONNECT,
    "rest.host.name": _NO_CONNECT,
    "metric.reporters": "metrics have names of their own",
}
# Everything that begins with one of these is known, too.
KNOWN_PREFIXES: dict[str, str] = {
    "producer.": _OWN_CLIENT,
    "consumer.": _OWN_CLIENT,
    "admin.": _OWN_CLIENT,
    "source.producer.": _OWN_CLIENT,
    "source.consumer.": _OWN_CLIENT,
    "source.admin.": _OWN_CLIENT,
    "target.producer.": _OWN_CLIENT,
    "target.consumer.": _OWN_CLIENT,
    "target.admin.": _OWN_CLIENT,
    "metadata.": _OWN_CLIENT,
    "connections.": _OWN_CLIENT,
    "request.": _OWN_CLIENT,
    "reconnect.": _OWN_CLIENT,
    "retry.": _OWN_CLIENT,
    "retries": _OWN_CLIENT,
    "socket.": _OWN_CLIENT,
    "send.buffer.": _OWN_CLIENT,
    "receive.buffer.": _OWN_CLIENT,
    "default.api.": _OWN_CLIENT,
    "metrics.": "metrics have names of their own",
    "transforms.": "records are copied byte for byte",
    "predicates.": "records are copied byte for byte",
    "key.converter.": "records are copied byte for byte",
    "value.converter.": "records are copied byte for byte",
    "header.converter.": "records are copied byte for byte",
    "config.providers.": "`${...}` in values is passed on as it stands",
    "errors.": "a record that cannot be copied stops its partition, loudly",
    "topic.creation.": "topics are created with the source's partition count",
    "rest.": _NO_CONNECT,
    "admin.listeners": _NO_CONNECT,
    "listeners.": _NO_CONNECT,
    "inter.worker.": _NO_CONNECT,
    "response.http.": _NO_CONNECT,
    "access.control.": _NO_CONNECT,
}


def is_security(name: str) -> bool:
    return name.startswith(SECURITY)


def why_unused(name: str) -> str | None:
    """Why a known property has no effect; None if it is not known."""
    if name in KNOWN:
        return KNOWN[name]
    return next((why for prefix, why in KNOWN_PREFIXES.items() if name.startswith(prefix)), None)
