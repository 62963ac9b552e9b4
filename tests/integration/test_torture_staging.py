"""`isthmus torture FILE`: a storm on clusters that are somebody's, who finds them as they were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.integration.command import Running, fill, isthmus, unique, wait_for

from isthmus.config.credentials import login
from isthmus.lab import Lab
from isthmus.lab.doors import Doors
from isthmus.lab.oracle import read_topic

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
OWN = unique("orders-")


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Doors:
    return Doors(folder=tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def owned(doors: Doors) -> Iterator[Lab]:
    with Lab([doors.spec("east"), doors.spec("west")]) as lab:
        for side in ("east", "west"):
            doors.add_users(lab[side].bootstrap)
            fill(lab[side], OWN, 100)
        yield lab


@pytest.fixture
def file(owned: Lab, doors: Doors, tmp_path: Path) -> Path:
    """With a login inside TLS to the source, in clear to the target; its topics are none of torture's business."""
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": doors.authority.pem()}
    east = login("SCRAM-SHA-512", doors.user, doors.password, tls=True) | trust
    west = login("PLAIN", doors.user, doors.password, tls=False)
    clusters = {
        "east": {"bootstrap": owned["east"].bootstrap_of("SASLTLS"), "properties": east},
        "west": {"bootstrap": owned["west"].bootstrap_of("SASL"), "properties": west},
    }
    path = tmp_path / "flow.yaml"
    path.touch(mode=0o600)
    flow = {"from": "east", "to": "west", "topics": [OWN], "naming": "identity"}
    path.write_text(json.dumps({"clusters": clusters, "flows": [flow]}))
    return path


def topics(lab: Lab, side: str) -> list[str]:
    return sorted(AdminClient({"bootstrap.servers": lab[side].bootstrap}).list_topics(timeout=30).topics)


def untouched(lab: Lab) -> bool:
    """But for what Kafka keeps for itself, once somebody writes in transactions."""
    own = [[name for name in topics(lab, side) if not name.startswith("__")] for side in ("east", "west")]
    kept = [len(each.digests) for side in ("east", "west") for each in read_topic(lab[side].bootstrap, OWN).values()]
    return own == [[OWN], [OWN]] and sum(kept) == 200


def test_a_storm_on_clusters_of_a_file_is_proven_and_leaves_them_as_they_were(
    owned: Lab, doors: Doors, file: Path
) -> None:
    words = "--faults", 4, "--only", "killed", "--only", "cut", "--seed", 1, "--rate", 100
    ended = isthmus("torture", file, *words, "--yes", "-o", "json", seconds=280)
    assert ended.code == 0, ended
    assert doors.password not in ended.out + ended.err
    found = ended.json()
    assert found["proven"]
    assert found["injected"] == 4
    assert found["records"] > 100
    assert found["left"] == []
    assert untouched(owned)


def test_one_that_is_interrupted_removes_its_topics_too(owned: Lab, file: Path) -> None:
    with Running("torture", file, "--only", "far away", "--yes") as running:
        wait_for(lambda: running.says("far away: "), 200, "a fault")
        assert any("isthmus-torture-" in name for name in topics(owned, "west"))
        running.interrupt()
        assert running.ended(100).code == 130
    assert untouched(owned)
