"""What each request does about each error code: the table of `docs/guarantees.md`, made of the product's own sets.

A row names the codes after which the same is asked again, those that make an order void, and what any other code does.
`test_reactions.py` asks real brokers behind scripted doors for every code and every row, and compares the page.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from isthmus.engine import refusals
from isthmus.wire import codes, groups, transaction

EVERY_CODE = [-1, *range(1, 130)]
FLOW = "the lane is planned anew; at a start: the flow stops"
LATER = "a note; asked again in the next round"
RUNNING = "test_request_codes.py::test_a_running_flow_goes_on_after_any_answer_to_any_request"
ENDED = "test_reactions.py::test_each_answer_to_the_end_of_a_transaction"
GROUPS = "test_request_codes.py::test_groups_are_taken_along_after_any_answer_about_them_and_records_never_wait"


class Row(NamedTuple):
    request: str
    again: Collection[int]
    void: Collection[int] = ()
    others: str = FLOW
    shown: str = ""


ROWS = (
    Row(
        "Fetch of a source partition",
        codes.MOVING | refusals._MAY_BE_READ | {codes.OFFSET_OUT_OF_RANGE, codes.UNKNOWN_TOPIC, codes.UNKNOWN_TOPIC_ID},
        others="the partition stops (`SOURCE_REFUSED`)",
        shown="test_error_codes.py::test_every_answer_to_a_fetch_has_its_reaction",
    ),
    Row(
        "ListOffsets of a source partition",
        codes.ASKED_AGAIN,
        others="the partition stops (`SOURCE_REFUSED`)",
        shown="test_request_codes.py::test_every_answer_to_the_question_where_a_log_begins_has_its_reaction",
    ),
    Row(
        "Produce to a copy",
        refusals.may_be_taken(),
        codes.VOID,
        "the partition stops (`TARGET_REFUSED`; 100: `TARGET_RECREATED`)",
        "test_error_codes.py::test_every_answer_to_a_produce_has_its_reaction",
    ),
    Row("Produce of progress", refusals.may_be_taken(), codes.VOID, "the order is void", RUNNING),
    Row(
        "FindCoordinator",
        codes.COORDINATOR_MOVING | codes.MOVING | {codes.UNKNOWN_SERVER},
        shown="test_reactions.py::test_each_answer_to_a_look_for_the_coordinator",
    ),
    Row("InitProducerId", transaction.FENCED_AGAIN, shown="test_reactions.py::test_each_answer_to_a_fence"),
    Row(
        "AddPartitionsToTxn",
        transaction.ADDED_AGAIN,
        transaction.VOIDED - transaction.ADDED_AGAIN,
        shown="test_reactions.py::test_each_answer_to_adding_partitions_under_the_first_protocol",
    ),
    Row(
        "EndTxn, second protocol",
        transaction.ENDED_AGAIN,
        transaction.VOIDED - transaction.ENDED_AGAIN,
        shown=ENDED,
    ),
    Row("EndTxn, first protocol", transaction.ENDED_AGAIN - transaction.VOIDED, transaction.VOIDED, shown=ENDED),
    Row(
        "ListTransactions",
        transaction.LISTED_AGAIN,
        shown="test_reactions.py::test_each_answer_to_a_question_for_transactional_ids",
    ),
    Row(
        "ListOffsets of the target",
        codes.ASKED_AGAIN,
        shown="test_reactions.py::test_each_answer_to_a_question_for_an_end",
    ),
    Row(
        "Fetch of progress",
        codes.ASKED_AGAIN | {codes.OFFSET_OUT_OF_RANGE},
        shown="test_reactions.py::test_each_answer_to_a_read_of_progress",
    ),
    Row(
        "Fetch of a control topic",
        codes.ASKED_AGAIN | {codes.OFFSET_OUT_OF_RANGE},
        shown="test_reactions.py::test_each_answer_to_a_read_of_a_log",
    ),
    Row("Produce to a control topic", codes.ASKED_AGAIN, shown="test_reactions.py::test_each_answer_to_an_append"),
    Row(
        "CreateTopics",
        codes.CONTROLLER_MOVING,
        others="the topic waits, with a stop that says why, and is tried again; a topic of the flow's own, at a start: "
        "the flow stops",
        shown="test_reactions.py::test_each_answer_to_the_creation_of_a_topic",
    ),
    Row("DescribeConfigs", (), others=LATER, shown="test_reactions.py::test_each_answer_to_a_question_for_settings"),
    Row("ListGroups, OffsetFetch, OffsetCommit", groups._MOVED, others=LATER, shown=GROUPS),
)


def table() -> str:
    """As it stands in the page."""
    lines = ["| request | asked again | the order is void | any other code | shown by |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.request} | {_list(row.again)} | {_list(row.void)} | {row.others} | `tests/faults/{row.shown}` |"
        for row in ROWS
    ]
    return "\n".join(lines)


def _list(numbers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "–"


def row_of(request: str) -> Row:
    (found,) = (row for row in ROWS if row.request == request)
    return found
