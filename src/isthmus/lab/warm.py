"""What is made once per Kafka version so that brokers start quickly, and kept in the cache.

The bootstrap checkpoint is the binary file by which a new KRaft cluster learns its feature levels;
it names no cluster and no node, so one per set of features serves forever. The class archive
(class data sharing) more than halves the start of a broker: 3.8 s to 1.6 s. It is an accelerator
only: the JVM ignores one that does not fit, and without it everything still works.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from isthmus.errors import MachineError
from isthmus.lab.brokers import java_command, write_properties
from isthmus.lab.jars import broker_jars
from isthmus.machine import cache_folder, java_version, locked

_TOOL_SECONDS = 120
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def bootstrap_checkpoint(version: str, features: Mapping[str, int]) -> Path:
    """The first metadata of a new cluster with these feature levels."""
    levels = [f"{name}={level}" for name, level in sorted(features.items())]
    path = cache_folder() / "-".join((f"kafka-{version}", *levels, "bootstrap.checkpoint"))
    with locked("checkpoint"):
        if not path.exists():
            _format_once(version, levels, path)
    return path


def _format_once(version: str, levels: list[str], path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="format.", dir=path.parent) as temporary:
        folder = Path(temporary)
        write_properties(folder / "format.properties", _any_node(folder))
        words = ["kafka.tools.StorageTool", "format", "-t", "isthmus-laboratory-id-"]
        words += ["-c", str(folder / "format.properties")]
        for level in levels:
            words += ["--feature", level]
        command = java_command(version, *words, heap_mb=128)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TOOL_SECONDS)
        made = folder / "data" / "bootstrap.checkpoint"
        if done.returncode != 0 or not made.exists():
            raise _not_formatted(version, levels, done.stderr + done.stdout)
        made.rename(path)


def _not_formatted(version: str, levels: list[str], output: str) -> MachineError:
    lines = [line for line in output.splitlines() if line.strip()]
    wanted = ", ".join(levels) or "default features"
    return MachineError(
        f"Kafka {version} refused to format storage with {wanted}: {(lines or ['?'])[-1]}",
        code="LAB",
    )


def _any_node(folder: Path) -> dict[str, str]:
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": "1@127.0.0.1:2",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
        "log.dirs": str(folder / "data"),
    }


def archive_flags(version: str, rehearse: Callable[[Sequence[str]], None]) -> tuple[str, ...]:
    """JVM flags that use the class archive; the first time, `rehearse` runs a broker to record it.

    `rehearse` starts a broker with the flags that it is given and ends it in good order, for the
    archive is written as the JVM exits. Should none come of it, brokers start without.
    """
    path = cache_folder() / f"{broker_jars(version).name}-java-{java_version()}.jsa"
    with locked("archive"):
        if not path.exists():
            draft = path.with_suffix(".draft")
            rehearse((f"-XX:ArchiveClassesAtExit={draft}", *_SILENT))
            if not draft.exists():
                return ()
            draft.rename(path)
    return (f"-XX:SharedArchiveFile={path}", *_SILENT)
