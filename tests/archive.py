"""A class archive (class data sharing) of Spark: its JVM starts with half of the CPU-seconds, 3.6 instead of 7.3.

`python -m tests.archive` records one while checks run, once for each Java and each place of Spark's jars; it stays in
the lab's cache. It is an accelerator only: without it, or with one that does not fit, everything works all the same.
Users' runs do not know of it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from pathlib import Path

from isthmus.errors import IsthmusError
from isthmus.lab.state import cache_folder, locked
from isthmus.machine import java_version

_OPTIONS = "SPARK_SUBMIT_OPTS"  # of Spark's own JVM, and of no other
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_WRITTEN_WITHIN_S = 300.0


def quicken() -> None:
    """Have this process and its children use the archive; what a user has set stays."""
    if _path().exists():
        os.environ.setdefault(_OPTIONS, f"-XX:SharedArchiveFile={_path()} {_SILENT}")


def record() -> None:
    """Start Spark, let it do what lanes make it do, and have its JVM write down which classes that took."""
    path = _path()
    with locked("spark-archive"):
        if not path.exists():
            draft = path.with_suffix(".draft")
            os.environ[_OPTIONS] = f"-XX:ArchiveClassesAtExit={draft} {_SILENT}"
            _rehearse()
            if draft.exists():
                for old in path.parent.glob(f"{path.stem.partition('.')[0]}.*.jsa"):
                    old.unlink()
                draft.rename(path)


def _rehearse() -> None:
    from isthmus.engine import spark  # not above: whoever only wants to use the archive need not wait for PySpark

    spark._JVM_ENDS_S = _WRITTEN_WITHIN_S  # it writes as it ends
    running = spark.open_spark("local[*]", 1, "rehearsal", {})
    try:
        running.context.parallelize([1], 1).mapPartitions(list).collect()
    finally:
        running.close()


def _path() -> Path:
    """The JVM takes an archive only with the very jars that it was recorded with, at their place and of their time."""
    package = importlib.util.find_spec("pyspark")
    jars = Path(package.origin if package and package.origin else "").parent / "jars"
    times = [(jar.name, jar.stat().st_mtime_ns) for jar in sorted(jars.glob("*.jar"))]
    return cache_folder() / f"spark-{_short(str(jars))}.{_short(f'{java_version()} {times}')}.jsa"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


if __name__ == "__main__":
    try:
        record()
    except (IsthmusError, OSError) as error:
        sys.stderr.write(f"no class archive of Spark, tests will start it without: {error}\n")
