"""Fixtures that most tests with brokers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.sources import Pair, forget_clients

from isthmus.lab import Lab


@pytest.fixture(scope="module", autouse=True)
def _clients() -> Iterator[None]:
    """Clients are kept for a module's tests, and no longer: their clusters may be gone for the next."""
    yield
    forget_clients()


@pytest.fixture
def pair(lab: Lab) -> Pair:
    return Pair(lab)
