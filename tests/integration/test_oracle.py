"""The oracle finds damage that was planted on real clusters, and finds none where there is none."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from isthmus.errors import ProofError
from isthmus.lab.mix import produce_mix
from isthmus.lab.oracle import compare, compare_all

if TYPE_CHECKING:
    from isthmus.lab.cluster import Lab

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | str | None]], int]

ROWS: list[Row] = [
    (b"k%d" % n, None if n % 10 == 9 else b"v%d" % n, [("h", b"%d" % n)], 1_700_000_000_000 + n) for n in range(200)
]
PARTITION = 1

pytestmark = pytest.mark.integration


def write(bootstrap: str, topic: str, rows: list[Row], **settings: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    if settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    for key, value, headers, timestamp in rows:
        producer.produce(topic, value, key, partition=PARTITION, timestamp=timestamp, headers=headers)
    assert producer.flush(30) == 0
    return producer


@pytest.fixture
def topic(lab: Lab) -> str:
    name = f"oracle-{uuid.uuid4().hex[:8]}"
    for side in ("east", "west"):
        lab[side].create_topic(name, partitions=2, replication_factor=1)
    return name


def edited(change: Callable[[list[Row]], object]) -> list[Row]:
    rows = list(ROWS)
    change(rows)
    return rows


def doubled(rows: list[Row]) -> None:
    rows.insert(50, rows[49])


def swapped(rows: list[Row]) -> None:
    rows[50], rows[51] = rows[51], rows[50]


def replaced(row: Row) -> Callable[[list[Row]], object]:
    return lambda rows: rows.__setitem__(50, row)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        pytest.param(lambda rows: None, {}, id="none"),
        pytest.param(lambda rows: rows.pop(50), {"lost": 1}, id="missing"),
        pytest.param(doubled, {"duplicated": 1}, id="doubled"),
        pytest.param(swapped, {"reordered": 1}, id="swapped"),
        pytest.param(replaced((b"k50", b"other", ROWS[50][2], ROWS[50][3])), {"altered": 1}, id="value"),
        pytest.param(replaced((None, b"v50", ROWS[50][2], ROWS[50][3])), {"altered": 1}, id="null key"),
        pytest.param(replaced((b"k50", b"v50", [], ROWS[50][3])), {"altered": 1}, id="no header"),
        pytest.param(replaced((*ROWS[50][:3], ROWS[50][3] + 1)), {"altered": 1}, id="time"),
        pytest.param(lambda rows: rows.append(rows[0]), {"duplicated": 1}, id="doubled at the end"),
    ],
)
def test_planted_damage_is_named(
    lab: Lab, topic: str, damage: Callable[[list[Row]], object], found: dict[str, int]
) -> None:
    write(lab["east"].bootstrap, topic, ROWS)
    write(lab["west"].bootstrap, topic, edited(damage))

    verdict = compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, topic)

    kinds = ("lost", "duplicated", "reordered", "altered", "foreign")
    assert {kind: getattr(verdict, kind) for kind in kinds if getattr(verdict, kind)} == found
    assert verdict.equal == (not found)
    assert (verdict.partitions, verdict.records) == (2, len(ROWS))
    if found:
        assert verdict.first_difference.startswith(f"partition {PARTITION}, record ")


def test_aborted_records_do_not_count_on_either_side(lab: Lab, topic: str) -> None:
    aborted = write(lab["east"].bootstrap, topic, ROWS[:20], **{"transactional.id": topic})
    aborted.abort_transaction(30)
    write(lab["east"].bootstrap, topic, ROWS)
    committed = write(lab["west"].bootstrap, topic, ROWS, **{"transactional.id": topic})
    committed.commit_transaction(30)

    assert compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, topic).equal


def test_an_aborted_record_that_leaked_is_found(lab: Lab, topic: str) -> None:
    leaked: list[Row] = [(b"leak", b"leak", [], 1)]
    write(lab["east"].bootstrap, topic, leaked, **{"transactional.id": topic}).abort_transaction(30)
    write(lab["west"].bootstrap, topic, leaked)

    verdict = compare(lab["east"].bootstrap, topic, lab["west"].bootstrap, topic)

    assert (verdict.foreign, verdict.lost, verdict.equal) == (1, 0, False)


def test_a_missing_target_topic_is_a_difference_and_a_missing_source_topic_an_error(lab: Lab) -> None:
    east, west = lab["east"].bootstrap, lab["west"].bootstrap
    name = f"oracle-{uuid.uuid4().hex[:8]}"
    lab["east"].create_topic(name, partitions=1, replication_factor=1)

    assert "does not exist" in compare(east, name, west, name).first_difference
    with pytest.raises(ProofError, match="does not exist"):
        compare(east, "oracle-never", west, "oracle-never")


def test_the_mix_holds_what_it_promises(lab: Lab) -> None:
    east = lab["east"].bootstrap
    topics = produce_mix(east, f"mix{uuid.uuid4().hex[:6]}", 4_000)

    verdicts = compare_all(east, east, [(topic, topic) for topic in topics])

    assert all(verdict.equal for verdict in verdicts)
    assert [verdict.records for verdict in verdicts] == [1400, 1600, 400, 320, 200, 3, 80, 0]
