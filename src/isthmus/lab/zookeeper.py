"""The one ZooKeeper that a lab cluster older than KRaft needs; nothing else knows about it.

Such clusters exist to test old message formats and the old transaction protocol. The server keeps
its port for the life of the cluster and is never killed by tests.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from isthmus.errors import MachineError
from isthmus.lab.brokers import HOST, ClusterSpec, JavaProcess, Node, free_ports, java_command
from isthmus.lab.guard import Guard

_START_SECONDS = 30.0


def start(spec: ClusterSpec, guard: Guard, folder: Path) -> tuple[JavaProcess, str]:
    """Start a server; returns it and its address."""
    place, port = folder / "zookeeper", next(free_ports())
    place.mkdir(parents=True)
    config = place / "zoo.cfg"
    lines = f"dataDir={place}", f"clientPort={port}", f"clientPortAddress={HOST}", "tickTime=500"
    config.write_text("\n".join((*lines, "admin.enableServer=false", "maxClientCnxns=0", "")))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)
    process = JavaProcess(guard, java_command(spec.version, *main, heap_mb=128), place / "log")
    process.start()
    _wait_for(process, port)
    return process, f"{HOST}:{port}"


def settings(node: Node, place: str) -> dict[str, str]:
    return {
        "broker.id": str(node.id),
        "zookeeper.connect": place,
        # A killed broker can register again only when its old session has expired.
        "zookeeper.session.timeout.ms": "3000",
        "zookeeper.connection.timeout.ms": "30000",
    }


def _wait_for(process: JavaProcess, port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.alive() and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.05)
    raise MachineError(f"ZooKeeper did not start:\n{process.tail()}", code="LAB")
