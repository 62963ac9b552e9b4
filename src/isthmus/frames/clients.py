"""The settings of Kafka's own clients, apart from security: how they behave, which are not here.

A name that is none of them is a slip. Which of them count here is said where they are read (`options`, `sink_options`).
"""

from __future__ import annotations

OF_CLIENTS = (
    *("bootstrap.servers", "client.id", "client.rack", "client.dns.lookup", "group.id", "group.instance.id"),
    *("group.protocol", "group.remote.assignor", "session.timeout.ms", "heartbeat.interval.ms"),
    *("max.poll.records", "max.poll.interval.ms", "partition.assignment.strategy", "metadata.max.age.ms"),
    *("metadata.max.idle.ms", "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms"),
    *("auto.commit.interval.ms", "auto.offset.reset", "enable.auto.commit", "fetch.min.bytes"),
    *("fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes", "send.buffer.bytes"),
    *("receive.buffer.bytes", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms"),
    *("retry.backoff.max.ms", "request.timeout.ms", "default.api.timeout.ms", "connections.max.idle.ms"),
    *("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms", "check.crcs"),
    *("exclude.internal.topics", "allow.auto.create.topics", "isolation.level", "metric.reporters"),
    *("metrics.num.samples", "metrics.sample.window.ms", "metrics.recording.level", "enable.metrics.push"),
    *("key.deserializer", "value.deserializer", "key.serializer", "value.serializer", "interceptor.classes"),
    *("acks", "batch.size", "buffer.memory", "compression.type", "compression.gzip.level"),
    *("compression.lz4.level", "compression.zstd.level", "delivery.timeout.ms", "enable.idempotence"),
    *("linger.ms", "max.block.ms", "max.in.flight.requests.per.connection", "max.request.size", "retries"),
    *("partitioner.class", "partitioner.ignore.keys", "partitioner.adaptive.partitioning.enable"),
    *("partitioner.availability.timeout.ms", "transaction.timeout.ms", "transactional.id"),
)
