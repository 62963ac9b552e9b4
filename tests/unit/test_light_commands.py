"""Commands that touch no cluster start at once: they import neither numba, nor Spark, nor Kafka's messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FLOW = "{clusters: {east: {bootstrap: 'e:1'}, west: {bootstrap: 'w:1'}}, flows: [{from: east, to: west, topics: [a]}]}"
HEAVY = {"numba", "numpy", "pyspark", "py4j", "kafka", "confluent_kafka", "matplotlib", "lz4", "cramjam"}
TELL = """
import sys
from isthmus.cli.app import main
try:
    main()
except SystemExit as end:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
    raise
"""


def imported_by(*words: str) -> set[str]:
    ended = subprocess.run([sys.executable, "-c", TELL, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["run", "--help"],
        ["config", "schema"],
        ["config", "convert", "{file}"],
    ],
    ids=["version", "help", "schema", "convert"],
)
def test_a_command_that_touches_no_cluster_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    assert not imported_by(*(word.format(file=file) for word in words)) & HEAVY


def test_a_look_at_a_flow_that_runs_needs_no_compiled_code() -> None:
    code = "import sys, isthmus.engine.outlook; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "numpy", "pyspark", "isthmus.wire.kernels"} & set(found)


def test_spark_can_be_started_before_a_lanes_libraries_are_imported() -> None:
    code = "import sys, isthmus.engine.run; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numba", "kafka", "isthmus.engine.lane"} & set(found)
    assert "pyspark" in found
