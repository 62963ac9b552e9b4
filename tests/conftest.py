"""Fixtures that need real brokers; unit tests ask for none of them and start nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from isthmus.lab import ClusterSpec, Lab


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Two clusters of one broker each, east and west, shared by the whole run."""
    with Lab([ClusterSpec(name="east"), ClusterSpec(name="west")]) as clusters:
        yield clusters


@pytest.fixture
def topic_name() -> str:
    """A name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"
