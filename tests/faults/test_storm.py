"""A short storm, by a seed: the same command as users have, with every judge it has. `make torture` is the long one."""

from __future__ import annotations

import pytest
from tests.integration.command import isthmus

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(600)]

KINDS = (
    "worker killed",
    "program killed",
    "target: broker killed",
    "target: reset again and again",
    "source: cut off",
    "one topic: made anew",
)


def test_a_short_storm_loses_doubles_and_moves_nothing() -> None:
    only = [word for kind in KINDS for word in ("--only", kind)]
    ended = isthmus("torture", "--seed", 7, "--faults", len(KINDS), *only, "-o", "json", seconds=560)
    assert ended.code == 0, ended
    found = ended.json()
    assert sorted(row["kind"] for row in found["kinds"]) == sorted(KINDS)
    assert (found["lost"], found["duplicated"], found["reordered"], found["altered"]) == (0, 0, 0, 0)
    assert found["reader"] == {"missing": 0, "again": 0}
    assert found["records"] > 1_000
