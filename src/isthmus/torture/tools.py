"""Kafka's own command line tools, run against a cluster of the lab: what they say is not ours to get wrong."""

from __future__ import annotations

import subprocess

from isthmus.errors import MachineError
from isthmus.lab.brokers import java_command
from isthmus.lab.jars import KAFKA

_WITHIN_S = 60.0
_DECIDED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


def tool(name: str, *words: str) -> str:
    """What it printed; raises with its last words if it failed."""
    command = java_command(KAFKA, name, *words, heap_mb=128, flags=("-XX:TieredStopAtLevel=1",), tools=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_S, check=False)  # noqa: S603 - Kafka's
    if done.returncode:
        raise MachineError(f"{name}: {(done.stderr or done.stdout).strip()[-400:]}", code="TORTURE")
    return done.stdout


def open_transactions(bootstrap: str, prefix: str) -> list[str]:
    """Transactional ids that begin so and whose last transaction is not over."""
    told = tool("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", bootstrap, "list")
    rows = [line.split() for line in told.splitlines()]
    return [row[0] for row in rows if len(row) == 4 and row[0].startswith(prefix) and row[3] not in _DECIDED]
