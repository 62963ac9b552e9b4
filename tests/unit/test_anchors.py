"""Which offset syncs count, without any broker."""

from __future__ import annotations

from typing import cast

from isthmus.engine.offsets.anchors import Anchors
from isthmus.mm2.formats import OffsetSync
from isthmus.model import TopicPartition
from isthmus.wire.cluster import Client


def kept(*pairs: tuple[int, int]) -> list[tuple[int, int]]:
    nobody = cast("Client", None)
    anchors = Anchors(nobody, nobody)
    for pair in pairs:
        anchors.take(OffsetSync("orders", 3, *pair))
    return [(edge.source, edge.target) for edge in anchors.known(TopicPartition("orders", 3))]


def test_syncs_that_rise_in_both_logs_are_all_kept() -> None:
    assert kept((0, 0), (100, 90), (250, 180)) == [(0, 0), (100, 90), (250, 180)]


def test_records_that_are_copied_again_count_where_they_came_last() -> None:
    assert kept((0, 0), (49, 49), (79, 79), (50, 80)) == [(0, 0), (49, 49), (50, 80)]


def test_a_copy_that_was_made_anew_leaves_nothing_of_the_old_one() -> None:
    assert kept((0, 0), (500, 500), (501, 0), (600, 99)) == [(501, 0), (600, 99)]
