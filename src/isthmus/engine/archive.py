"""A class archive (class data sharing) of Spark: its JVM starts with half of the CPU-seconds, 3.6 instead of 7.3.

Recorded once for each Java and each place of Spark's jars (`isthmus quicken`), kept in the cache, and used by every
start afterwards. It is an accelerator only: without it, or with one that does not fit, everything works all the same.
What must stay true: nothing that a user runs waits for a recording, or pays for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
from pathlib import Path

from isthmus.machine import cache_folder, java_version, locked

_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_WRITTEN_WITHIN_S = 300.0


def flags() -> str:
    """For Spark's JVM; empty: there is none."""
    try:
        path = archive_path()
    except OSError:
        return ""  # no home, or one that cannot be written to
    return f"-XX:SharedArchiveFile={path} {_SILENT}" if path.exists() else ""


def record() -> Path | None:
    """Start Spark, let it do what lanes make it do, and have its JVM write down which classes that took. None: the JVM
    wrote nothing."""
    path = archive_path()
    with locked("spark-archive"):
        if not path.exists():
            draft = path.with_suffix(".draft")
            _rehearse(f"-XX:ArchiveClassesAtExit={draft} {_SILENT}")
            if not draft.exists():
                return None
            for old in path.parent.glob(f"{path.stem.partition('.')[0]}.*.jsa"):
                old.unlink()
            draft.rename(path)
    return path


def _rehearse(options: str) -> None:
    from isthmus.engine import spark  # not above: it asks for the flags, and whoever only wants those need not wait

    running = spark.open_spark("local[*]", 1, "rehearsal", {}, jvm_flags=options)
    try:
        asyncio.run(running.submit("rehearsal", "as a lane is begun", 1, iter))
    finally:
        running.close(_WRITTEN_WITHIN_S)  # it writes as it ends


def archive_path() -> Path:
    """The JVM takes an archive only with the very jars that it was recorded with, at their place and of their time."""
    package = importlib.util.find_spec("pyspark")
    jars = Path(package.origin if package and package.origin else "").parent / "jars"
    times = [(jar.name, jar.stat().st_mtime_ns) for jar in sorted(jars.glob("*.jar"))]
    return cache_folder() / f"spark-{_short(str(jars))}.{_short(f'{java_version()} {times}')}.jsa"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
