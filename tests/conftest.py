"""Fixtures that need real brokers; unit tests ask for none of them and start nothing."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from isthmus.lab import ClusterSpec, Lab

# JVMs of tests live for seconds or minutes: what Java's second compiler costs never pays back. Measured with one
# broker on each side and a Spark run: 42 CPU-seconds instead of 51.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# Files that take a minute or more, the longest first. Two workers take file after file: a long one that comes last
# would leave one of them with nothing to do.
_LONG = (
    "test_transforms",
    "test_request_codes",
    "test_brokers",  # not the first: the old brokers that it needs are still being fetched on a new machine
    "test_processes",
    "test_run_command",
    "test_security",
    "test_docs_blocks",
    "test_sink_spark",
    "test_changes",
    "test_adopt",
    "test_elections",
    "test_drill",
    "test_storm",
    "test_content",
    "test_groups",
    "test_spark_cluster",
    "test_failover",
    "test_protocols",
    "test_frames_spark",
    "test_verify",
    "test_bad_input",
    "test_resolve",
    "test_dead_letters",
    "test_loops",
    "test_twins",
    "test_lanes_change",
    "test_invariants",
    "test_tunnel_faults",
    "test_tunnel",
    "test_torture_staging",
    "test_live",
    "test_lab",
    "test_acls",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorting keeps the order within a file. Left to itself, xdist takes the files with the most tests first."""
    places = {name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Two clusters of one broker each, east and west, shared by the whole run."""
    with Lab([ClusterSpec(name="east"), ClusterSpec(name="west")]) as clusters:
        yield clusters


@pytest.fixture
def topic_name() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
