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


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Two clusters of one broker each, east and west, shared by the whole run."""
    with Lab([ClusterSpec(name="east"), ClusterSpec(name="west")]) as clusters:
        yield clusters


@pytest.fixture
def topic_name() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
