"""Requests that create topics are of a size that a controller takes."""

from __future__ import annotations

from isthmus.wire.admin import NewTopic, by_partitions


def topics(*partitions: int) -> list[NewTopic]:
    return [NewTopic(f"t{number}", count, -1, {}) for number, count in enumerate(partitions)]


def test_many_partitions_are_created_by_several_requests_and_none_is_left_out() -> None:
    wanted = topics(*[10] * 1_000)
    batches = list(by_partitions(wanted))
    assert [topic for batch in batches for topic in batch] == wanted
    assert [sum(topic.partitions for topic in batch) for batch in batches] == [2_000] * 5


def test_a_topic_that_is_larger_than_a_batch_goes_alone() -> None:
    assert [[t.partitions for t in batch] for batch in by_partitions(topics(1, 5_000, 1, 1))] == [[1], [5_000], [1, 1]]


def test_nothing_to_create_is_no_request() -> None:
    assert list(by_partitions([])) == []
