"""The sink's pure parts: its options, what is on record against a batch that comes, and slips that do not fit."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from isthmus.errors import ConfigError, OrderVoid, TargetError
from isthmus.frames import KafkaSink
from isthmus.frames.deeds import overlaps
from isthmus.frames.placing import makers, placed
from isthmus.frames.sink_options import read_sink_options
from isthmus.frames.standing import SinkLog, Turn, is_written
from isthmus.frames.tickets import Place, Slip
from isthmus.model import Cluster, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.compression import NAMES

SERVERS = {"kafka.bootstrap.servers": "west-1:9092"}
SECRET = "hunter2"
LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'PlainLoginModule required username="u" password="{SECRET}";',
}
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


# --- options -------------------------------------------------------------------------------------


def test_options_are_those_of_sparks_own_sink_whatever_their_case() -> None:
    found = read_sink_options(SERVERS | LOGIN | {"Topic": "orders", "includeheaders": "true", "kafka.linger.ms": "5"})
    assert (found.topic, NAMES[found.codec], found.cluster.bootstrap) == ("orders", "lz4", ("west-1:9092",))
    assert found.cluster.security.login is not None
    assert SECRET not in repr(found)


@pytest.mark.parametrize("name", ["compression", "kafka.compression.type"])
@pytest.mark.parametrize("codec", NAMES)
def test_compression_has_two_names(name: str, codec: str) -> None:
    assert NAMES[read_sink_options({**SERVERS, name: codec}).codec] == codec


WRONG = [
    ({"topics": "a"}, "no such option", "did you mean `topic`"),
    ({"compresion": "lz4"}, "no such option", "did you mean `compression`"),
    ({"topic": " "}, "it is empty", ""),
    ({"compression": "lzma"}, "no such compression", ""),
    ({"compression": "lz4", "kafka.compression.type": "zstd"}, "says something else", "leave one"),
    ({"includeHeaders": "maybe"}, "neither true nor false", ""),
    ({"kafka.acks": "1"}, "exactly once cannot be had", "all"),
    ({"kafka.transactional.id": "x"}, "cannot be set here", "query's name"),
    ({"kafka.transaction.timeout.ms": "soon"}, "no number", ""),
    ({"kafka.bootstrap.servers": " "}, "it is missing", ""),
    ({**LOGIN, "kafka.sasl.jaas.config": f"x {SECRET}"}, "option `kafka.sasl.jaas.config`", ""),
]


@pytest.mark.parametrize(("given", "told", "hint"), WRONG, ids=[told for _, told, _ in WRONG])
def test_a_mistake_is_named_with_its_option(given: dict[str, str], told: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        KafkaSink("q", SERVERS | given)
    assert told in str(error.value)
    assert hint in error.value.hint
    assert error.value.code == "OPTION"
    assert SECRET not in str(error.value) + error.value.hint


@pytest.mark.parametrize("query", ["", "a/b", "a b", "x" * 201])
def test_the_name_of_a_query_is_one_that_keys_can_hold(query: str) -> None:
    with pytest.raises(ConfigError, match="query"):
        KafkaSink(query, SERVERS)
    with pytest.raises(ConfigError, match="neither refuse nor accept"):
        KafkaSink("q", SERVERS, new_checkpoint="yes")


# --- what is on record ---------------------------------------------------------------------------


def log(**known: Any) -> SinkLog:
    found = SinkLog(Client(Cluster(alias="west", bootstrap=("west-1:9092",))), "q")
    for name, value in known.items():
        setattr(found, name, value)
    return found


ON_RECORD = log(stream=Turn("one", 5), jobs={"monday"})


def test_the_last_batch_is_passed_over_and_the_next_one_written() -> None:
    assert is_written(ON_RECORD, Turn("one", 5), "q", accept=False)
    assert not is_written(ON_RECORD, Turn("one", 6), "q", accept=False)
    assert not is_written(log(), Turn("one", 0), "q", accept=False)
    assert is_written(ON_RECORD, Turn(name="monday"), "q", accept=False)
    assert not is_written(ON_RECORD, Turn(name="tuesday"), "q", accept=False)
    assert not is_written(ON_RECORD, Turn(), "q", accept=False)


@pytest.mark.parametrize("number", [0, 4, 7])
def test_any_other_batch_is_refused_even_if_a_new_checkpoint_is_accepted(number: int) -> None:
    with pytest.raises(TargetError, match="not the next one") as error:
        is_written(ON_RECORD, Turn("one", number), "q", accept=True)
    assert error.value.code == "BATCH_ORDER"


@pytest.mark.parametrize(
    ("known", "turn"), [(ON_RECORD, Turn("two", 0)), (ON_RECORD, Turn("two", 5)), (log(), Turn("two", 3))]
)
def test_a_checkpoint_that_is_not_the_one_on_record_is_refused_unless_accepted(known: SinkLog, turn: Turn) -> None:
    with pytest.raises(TargetError) as error:
        is_written(known, turn, "q", accept=False)
    assert error.value.code == "CHECKPOINT_LOST"
    assert 'new_checkpoint="accept"' in error.value.hint
    assert not is_written(known, turn, "q", accept=True)


# --- slips ---------------------------------------------------------------------------------------


def test_slips_that_share_a_partition_or_whose_rows_were_made_twice_are_not_committed() -> None:
    one = Slip(counts={A0: 1}, makers=frozenset({(0, 7), (1, 8)}))
    assert not overlaps([one, Slip(counts={A1: 1}, makers=frozenset({(0, 7)}))])
    assert overlaps([one, Slip(counts={A0: 2})])
    assert overlaps([one, Slip(counts={A1: 1}, makers=frozenset({(0, 9)}))])


def test_an_error_of_a_task_keeps_its_code_and_hint() -> None:
    error = OrderVoid("another attempt writes", hint="wait", code="CLAIMED")
    back = pickle.loads(pickle.dumps(replace(Slip(), error=error))).error
    assert (type(back), back.code, back.hint) == (OrderVoid, "CLAIMED", "wait")


def test_rows_tell_which_attempt_at_which_task_made_them() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["a", "a"],
            "partition": pa.array([1, None], pa.int32()),
            "key": pa.array([None, None], pa.binary()),
            "offset": pa.array(np.arange(2), pa.int64()),
        }
    )
    places = {"a": Place(topic="a", partitions=3)}
    made = placed(batch, places, 3, 17)
    assert made.column("partition").to_pylist() == [1, 1]
    assert makers(made) == {(3, 17)}
    assert makers(batch) == set()
    nowhere = placed(batch, {"a": Place(topic="a", partitions=1)}, 0, 5)  # the task that writes it will tell
    assert nowhere.column("partition").to_pylist() == [1, None]
    assert makers(nowhere) == {(0, 5)}
