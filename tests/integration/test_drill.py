"""The drill as it is run by hand: two clusters of its own, a planned move and a disaster, and both ways back."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.integration.command import isthmus

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.faults]

PLANNED = ("switchover", "failback")


@pytest.mark.timeout(600)
def test_clients_move_there_and_back_twice_and_lose_only_what_never_crossed(tmp_path: Path) -> None:
    report, picture = tmp_path / "drill.json", tmp_path / "drill.svg"

    ended = isthmus("drill", "--quick", "--report", report, "--picture", picture, "-o", "json", seconds=570)

    assert ended.code == 0, ended
    ended.quiet()
    found = ended.json()
    assert found == json.loads(report.read_text())
    acts = {act["act"]: act for act in found["acts"]}
    assert list(acts) == [*PLANNED, "failover", "failback after failover"]
    for name, act in acts.items():
        assert (act["lost"], act["reordered"]) == (0, 0), name
        assert act["rto_seconds"] > 0, name
        if name != "failover":
            assert (act["reread"], act["rpo_records"]) == (0, 0), name
    assert acts["failover"]["rpo_records"] > 0, "the disaster came while something had not crossed"
    assert {group["phantoms"] for group in found["groups"]} == {0}
    assert {group["read"] for group in found["groups"]} != {0}
    worked = {(rate["kind"], rate["cluster"]) for rate in found["rates"]}
    assert worked == {(kind, cluster) for kind in ("writes", "reads") for cluster in ("east", "west")}
    assert "proven" in "".join(ET.parse(picture).getroot().itertext())
