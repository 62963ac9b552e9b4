"""How MirrorMaker 2 is run in the bench: the real one, from the lab's jars, as its script starts it.

It gets the JVM options of `connect-mirror-maker.sh` and its own defaults for everything that moves
records (batches, compression, polls). Heartbeats, the copying of ACLs and settings, and the way back
are switched off, which can only help it. Exactly-once is what its documentation asks for: support
enabled for the target, and a source consumer that reads committed records.
"""

from __future__ import annotations

from pathlib import Path

from isthmus import machine
from isthmus.bench.crossing import Crossing
from isthmus.lab import jars

# kafka-run-class.sh and connect-mirror-maker.sh of Kafka 4.3
JVM = (
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
)


def command(crossing: Crossing, folder: Path, *, exactly_once: bool) -> list[str]:
    """Write the properties file into `folder`; the command that runs it."""
    file = folder / "mm2.properties"
    settings = properties(crossing, exactly_once=exactly_once)
    file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    return [str(machine.java()), *JVM, "-cp", jars.classpath(jars.jars()), main, str(file)]


def properties(crossing: Crossing, *, exactly_once: bool) -> dict[str, str]:
    source, target = crossing.source_alias, crossing.target_alias
    there, back = f"{source}->{target}", f"{target}->{source}"
    settings = {
        "clusters": f"{source}, {target}",
        f"{source}.bootstrap.servers": crossing.source,
        f"{target}.bootstrap.servers": crossing.target,
        f"{there}.enabled": "true",
        f"{there}.topics": ", ".join(crossing.topics),
        f"{back}.enabled": "false",
        f"{back}.emit.heartbeats.enabled": "false",
        "tasks.max": str(crossing.lanes),
        "replication.factor": "1",
        "refresh.topics.interval.seconds": "10",
        "emit.heartbeats.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
    }
    for internal in ("offset-syncs.topic", "checkpoints.topic", "heartbeats.topic"):
        settings[f"{internal}.replication.factor"] = "1"
    for store in ("offset", "status", "config"):
        settings[f"{store}.storage.replication.factor"] = "1"
    if exactly_once:
        settings[f"{target}.exactly.once.source.support"] = "enabled"
        settings[f"{there}.consumer.isolation.level"] = "read_committed"
    return settings
