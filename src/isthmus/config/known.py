"""The property names of MirrorMaker 2 and Kafka Connect, and what Isthmus makes of each.

Owns four sets: names that are USED, prefixes of client SECURITY settings that are passed on, names that are KNOWN
but have no effect, each with what happens instead, and names that are REFUSED because records would be delivered
otherwise than the file says. A name in none of them is unknown, most likely a slip. Taken from MirrorMaker 2's own
definitions (Kafka 4.x) and the older spellings that files in the wild still have.
"""

from __future__ import annotations

import re

from isthmus.model import SECURITY_SETTINGS

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
        "replication.policy.internal.topic.separator.enabled",
        "groups",
        "groups.whitelist",
        "groups.exclude",
        "groups.blacklist",
        "sync.topic.configs.enabled",
        "sync.topic.configs.interval.seconds",
        "config.properties.exclude",
        "config.properties.blacklist",
        "use.defaults.from",
        "sync.topic.acls.enabled",
        "sync.topic.acls.interval.seconds",
        "emit.heartbeats.enabled",
        "emit.heartbeats.interval.seconds",
        "heartbeats.replication.enabled",
        "emit.offset-syncs.enabled",
        "offset-syncs.topic.location",
        "offset.lag.max",
        "emit.checkpoints.enabled",
        "emit.checkpoints.interval.seconds",
        "sync.group.offsets.enabled",
        "sync.group.offsets.interval.seconds",
        "offset-syncs.topic.replication.factor",
        "checkpoints.topic.replication.factor",
        "heartbeats.topic.replication.factor",
    }
)
# Replication factors of MirrorMaker 2's own topics; here, all internal topics have one.
TOPIC_FACTORS = (
    "offset-syncs.topic.replication.factor",
    "checkpoints.topic.replication.factor",
    "heartbeats.topic.replication.factor",
)
CLUSTER_ONLY = frozenset({"bootstrap.servers"})
TOP_ONLY = frozenset({"clusters"})

_ALWAYS = "delivery is exactly-once always"
_NO_CONNECT = "there is no Kafka Connect worker here"
_OWN_CLIENT = "Isthmus has its own client and picks this itself"
_RUNS = "Spark runs the work"

KNOWN: dict[str, str] = {
    "exactly.once.source.support": _ALWAYS,
    "transaction.boundary": _ALWAYS,
    "exactly.once.support": _ALWAYS,
    "offset.flush.interval.ms": "progress is part of each transaction; see `tuning.commit_interval_ms`",
    "offset.flush.timeout.ms": "progress is part of each transaction",
    "refresh.groups.enabled": "groups are looked up anew for every checkpoint",
    "refresh.groups.interval.seconds": "groups are looked up anew for every checkpoint",
    "use.incremental.alter.configs": "topic configurations are always altered one by one",
    "refresh.topics.enabled": "new topics are always noticed",
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
    "client.dns.lookup": _OWN_CLIENT,
    "max.poll.records": _OWN_CLIENT,
    "enable.metrics.push": _OWN_CLIENT,
    "internal.key.converter": _NO_CONNECT,
    "internal.value.converter": _NO_CONNECT,
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
    "errors.": "a record that cannot be copied stops its partition, loudly",
    "topic.creation.": "topics are created with the source's partition count",
    "rest.": _NO_CONNECT,
    "admin.listeners": _NO_CONNECT,
    "listeners.": _NO_CONNECT,
    "inter.worker.": _NO_CONNECT,
    "response.http.": _NO_CONNECT,
    "access.control.": _NO_CONNECT,
}


# The values of these that MirrorMaker 2 itself has, or that mean the same; any other would change what is delivered.
_PACKAGE = "org.apache.kafka.connect.mirror."
_BYTES = ("org.apache.kafka.connect.converters.ByteArrayConverter",)
_COPIED = "records are copied byte for byte: do this before or after, or drop the line"
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "transforms": (("",), _COPIED),
    "predicates": (("",), _COPIED),
    "key.converter": (_BYTES, _COPIED),
    "value.converter": (_BYTES, _COPIED),
    "header.converter": (_BYTES, _COPIED),
    "topic.filter.class": (
        (f"{_PACKAGE}DefaultTopicFilter", "DefaultTopicFilter"),
        "a filter of one's own cannot be loaded: say it with `topics` and `topics.exclude`",
    ),
    "group.filter.class": (
        (f"{_PACKAGE}DefaultGroupFilter", "DefaultGroupFilter"),
        "a filter of one's own cannot be loaded: say it with `groups` and `groups.exclude`",
    ),
    "config.property.filter.class": (
        (f"{_PACKAGE}DefaultConfigPropertyFilter", "DefaultConfigPropertyFilter"),
        "a filter of one's own cannot be loaded: say it with `config.properties.exclude`",
    ),
    "errors.tolerance": (("none",), "a record that cannot be copied stops its partition; none is ever left out"),
}
# Settings of Kafka's clients, which MirrorMaker 2 takes with `consumer.`, `producer.` or `admin.` before them.
CLIENT = re.compile(r"(?:(?:source|target)\.)?(consumer|producer|admin)\.(?:override\.)?(.+)")
CLIENT_REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "isolation.level": (
        ("read_committed",),
        "only committed records are ever read, or aborted ones would be copied as real",
    ),
    "interceptor.classes": (("",), _COPIED),
}
_SIZES = "batches are taken as they are; see `tuning`"
CLIENT_KNOWN: dict[str, str] = {
    "fetch.max.bytes": "our YAML has `tuning.fetch_bytes`",
    "max.partition.fetch.bytes": "our YAML has `tuning.fetch_partition_bytes`",
    "fetch.max.wait.ms": "our YAML has `tuning.fetch_wait_ms`",
    "request.timeout.ms": "our YAML has `tuning.request_timeout_ms`",
    "transaction.timeout.ms": "our YAML has `tuning.transaction_timeout_ms`",
    "fetch.min.bytes": _SIZES,
    "max.request.size": _SIZES,
    "batch.size": _SIZES,
    "linger.ms": _SIZES,
    "buffer.memory": "our YAML has `tuning.queue_bytes`",
    "acks": "all replicas in sync acknowledge, always",
    "enable.idempotence": _ALWAYS,
    "transactional.id": _ALWAYS,
    "enable.auto.commit": _ALWAYS,
    "retries": "what fails is tried again until it works, without doubling",
    "delivery.timeout.ms": "what fails is tried again until it works, without doubling",
    "max.in.flight.requests.per.connection": "order is kept whatever this is",
}


def is_security(name: str) -> bool:
    return name.startswith(SECURITY_SETTINGS)


def declares_provider(name: str) -> bool:
    return name == "config.providers" or name.startswith("config.providers.")


def why_refused(name: str, value: str) -> str | None:
    """What to do instead, if the property would change what is delivered; None if it would not."""
    client = CLIENT.fullmatch(name)
    harmless, instead = REFUSED.get(name) or (CLIENT_REFUSED.get(client[2]) if client else None) or ((value,), "")
    return None if value in harmless else instead


def is_harmless(name: str) -> bool:
    """Whether a value that is not refused says only what is so anyway."""
    client = CLIENT.fullmatch(name)
    return name in REFUSED or (client is not None and client[2] in CLIENT_REFUSED)


def why_unused(name: str) -> str | None:
    """Why a known property has no effect; None if it is not known."""
    if name in KNOWN:
        return KNOWN[name]
    if client := CLIENT.fullmatch(name):
        return CLIENT_KNOWN.get(client[2], _OWN_CLIENT)
    return next((why for prefix, why in KNOWN_PREFIXES.items() if name.startswith(prefix)), None)
