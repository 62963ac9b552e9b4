"""Options of the source, and how a batch's offsets are chosen and shared: no broker is asked."""

from __future__ import annotations

import itertools
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.errors import ConfigError
from isthmus.frames import jsons
from isthmus.frames.options import read_options
from isthmus.frames.ranges import Range, admitted, between, shared
from isthmus.model import TopicPartition

SECRET = "s3cret-of-a-test"
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SERVERS = {"kafka.bootstrap.servers": "one:9092, two:9092"}
LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": f'ScramLoginModule required username="u" password="{SECRET}";',
}


# --- options -------------------------------------------------------------------------------------


def test_options_are_read_whatever_their_case() -> None:
    given = {
        "SUBSCRIBE": "orders, bills,orders",
        "startingoffsets": "latest",
        "maxoffsetspertrigger": "500",
        "minPartitions": "3",
        "failondataloss": "False",
        "INCLUDEHEADERS": "true",
    }
    found = read_options(SERVERS | given, streaming=True)
    assert found.cluster.bootstrap == ("one:9092", "two:9092")
    assert found.selection.topics == ("orders", "bills")
    assert (found.start.at, found.end.at) == ("latest", "latest")
    assert (found.most_per_batch, found.least_tasks, found.fail_on_loss, found.headers) == (500, 3, False, True)


def test_a_batch_begins_at_the_earliest_and_a_stream_at_the_latest_unless_told() -> None:
    assert read_options(SERVERS | {"subscribe": "a"}, streaming=False).start.at == "earliest"
    assert read_options(SERVERS | {"subscribe": "a"}, streaming=True).start.at == "latest"


def test_the_size_of_answers_is_the_smaller_one_that_is_set() -> None:
    def size(**given: str) -> int:
        dotted = {f"kafka.{name.replace('_', '.')}": value for name, value in given.items()}
        return read_options(SERVERS | dotted | {"subscribe": "a"}, streaming=False).answer_bytes

    assert size() == 4 << 20
    assert size(max_partition_fetch_bytes="1048576") == 1 << 20
    assert size(max_partition_fetch_bytes="9000000", fetch_max_bytes="8000000") == 8_000_000


def test_a_time_goes_before_times_and_times_before_offsets() -> None:
    offsets = {"startingOffsets": '{"a": {"0": 5, "1": -2}}'}
    times = {"startingOffsetsByTimestamp": '{"a": {"0": 7}}'}
    start = read_options(SERVERS | {"subscribe": "a"} | offsets, streaming=False).start
    assert (start.at, start.places) == ("offsets", {A0: 5, A1: jsons.EARLIEST})
    start = read_options(SERVERS | {"subscribe": "a"} | offsets | times, streaming=False).start
    assert (start.at, start.places) == ("times", {A0: 7})
    one = offsets | times | {"startingTimestamp": "9"}
    start = read_options(SERVERS | {"subscribe": "a"} | one, streaming=False).start
    assert (start.at, start.time) == ("time", 9)


def test_security_is_that_of_flow_files_and_secrets_do_not_show(tmp_path: Path) -> None:
    found = read_options(SERVERS | LOGIN | {"subscribe": "a"}, streaming=True)
    assert found.cluster.security.login is not None
    assert found.cluster.security.login.user == "u"
    assert SECRET not in repr(found)
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f"password={SECRET}\n")
    jaas = f'ScramLoginModule required username="u" password="${{file:{secrets}:password}}";'
    again = read_options(SERVERS | LOGIN | {"kafka.sasl.jaas.config": jaas, "subscribe": "a"}, streaming=True)
    assert again.cluster.security == found.cluster.security


WRONG = [
    ({}, "exactly one of them is meant, and none of them is set"),
    ({"subscribe": "a", "assign": '{"a": [0]}'}, "assign and subscribe are set"),
    ({"subscribe": " "}, "option `subscribe`"),
    ({"subscribePattern": "a("}, "option `subscribePattern`"),
    ({"assign": "a-0"}, "option `assign`"),
    ({"assign": '{"a": ["0"]}'}, "a partition that is no number"),
    ({"subscribe": "a", "startingOffset": "latest"}, "no such option"),
    ({"subscribe": "a", "startingOffsets": "newest"}, "option `startingOffsets`"),
    ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "-3 is no offset"),
    ({"subscribe": "a", "startingOffsets": '{"a": {"0": 1.5}}'}, "a place that is no number"),
    ({"subscribe": "a", "startingOffsets": '{"a": 5}'}, "`a` has no partitions"),
    ({"subscribe": "a", "startingOffsets": "latest"}, "a batch cannot begin at the latest"),
    ({"subscribe": "a", "startingOffsets": '{"a": {"0": -1}}'}, "a batch cannot begin at the latest"),
    ({"subscribe": "a", "endingOffsets": "earliest"}, "nothing can end at the earliest"),
    ({"subscribe": "a", "startingTimestamp": "soon"}, "`soon` is no number"),
    ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": -5}}'}, "-5 is no time"),
    ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "maybe"}, "neither error nor latest"),
    ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, "an option of a stream, and this is a batch"),
    ({"subscribe": "a", "minPartitions": "0"}, "`0` is no number of at least 1"),
    ({"subscribe": "a", "failOnDataLoss": "maybe"}, "neither true nor false"),
    ({"subscribe": "a", "kafka.bootstrap.servers": "one"}, "not host:port"),
    ({"subscribe": "a", "kafka.bootstrap.servers": " "}, "it is missing"),
    ({"subscribe": "a", "kafka.auto.offset.reset": "earliest"}, "it cannot be set here"),
    ({"subscribe": "a", "kafka.fetch.max.bytes": "1m"}, "option `kafka.fetch.max.bytes`"),
    ({"subscribe": "a", "kafka.max.partition.fetch.bytes": "0"}, "it is no number of bytes from 1"),
    ({"subscribe": "a", "kafka.isolation.level": "read_uncommitted"}, "only committed records are read"),
    ({"subscribe": "a", "kafka.security.protocol": "TLS"}, "option `kafka.security.protocol`"),
    ({"subscribe": "a", "kafka.ssl.truststore.location": "/x"}, "option `kafka.security.protocol`"),
    ({"subscribe": "a", **LOGIN, "kafka.sasl.mechanism": "GSSAPI"}, "not spoken here"),
    ({"subscribe": "a", **LOGIN, "kafka.sasl.jaas.config": f"x {SECRET}"}, "option `kafka.sasl.jaas.config`"),
    ({"subscribe": "a", "kafka.x": "${env:ISTHMUS_NO_SUCH_VARIABLE}"}, "option `kafka.x`"),
]


@pytest.mark.parametrize(("given", "told"), WRONG, ids=[told for _, told in WRONG])
def test_a_mistake_is_named_with_its_option(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_options(SERVERS | given, streaming=False)
    assert told in str(error.value)
    assert error.value.code == "OPTION"
    assert SECRET not in str(error.value) + error.value.hint


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ConfigError, match="an option of a batch, and this is a stream"):
        read_options(SERVERS | {"subscribe": "a", "endingOffsets": "latest"}, streaming=True)


# --- offsets -------------------------------------------------------------------------------------

OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d"]), st.integers(0, 20)), st.integers(0, 2**62)
)


@given(OFFSETS)
def test_offsets_come_back_as_they_were_written(offsets: dict[TopicPartition, int]) -> None:
    assert jsons.read(jsons.written(offsets)) == offsets


def test_offsets_are_written_as_sparks_own_source_writes_them() -> None:
    assert jsons.written({B0: 1, A1: 5, A0: 3}) == {"a": {"0": 3, "1": 5}, "b": {"0": 1}}


@given(OFFSETS, st.dictionaries(st.integers(0, 62), st.integers(0, 10**6)), st.integers(1, 10**6))
def test_a_limit_is_kept_by_shares_and_nobody_starves(
    start: dict[TopicPartition, int], waiting: dict[int, int], most: int
) -> None:
    latest = {tp: at + waiting.get(n, 0) for n, (tp, at) in enumerate(start.items())}
    found = admitted(start, latest, most)
    taken = {tp: found[tp] - start[tp] for tp in start}
    busy = [tp for tp in start if latest[tp] > start[tp]]
    assert all(start[tp] <= found[tp] <= latest[tp] for tp in start)
    assert all(taken[tp] >= 1 for tp in busy)
    assert sum(taken.values()) <= max(most, 0) + len(busy)
    if sum(latest[tp] - start[tp] for tp in start) <= most:
        assert found == latest
    assert admitted(start, latest, 0) == latest


def test_what_is_gone_or_went_back_is_a_loss() -> None:
    an_id = uuid.uuid4()
    found, losses = between({A0: 5, A1: 9, B0: 2}, {A0: 8, A1: 3}, {"a": an_id})
    assert found == [Range(tp=A0, low=5, end=8, topic_id=an_id)]
    told = [(loss.tp, loss.what) for loss in losses]
    assert told == [(B0, "the partition is gone"), (A1, "the log ends at offset 3, and 9 was reached before")]


@given(
    st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(1, 1000)), max_size=6),
    st.integers(0, 40),
)
def test_ranges_are_cut_into_at_least_so_many_and_together_they_are_the_same(
    sizes: dict[int, tuple[int, int]], least: int
) -> None:
    whole = [Range(tp=TopicPartition("a", n), low=low, end=low + size) for n, (low, size) in sizes.items()]
    pieces = shared(whole, least)
    assert len(pieces) >= min(least, sum(each.size for each in whole))
    assert all(piece.size > 0 for piece in pieces)
    for each in whole:
        mine = [piece for piece in pieces if piece.tp == each.tp]
        assert (mine[0].low, mine[-1].end) == (each.low, each.end)
        assert all(one.end == other.low for one, other in itertools.pairwise(mine))
    if len(whole) >= least:
        assert pieces == whole


@pytest.mark.parametrize("slip", ["kafka.securty.protocol", "kafka.saslmechanism", "kafka.fetch.maximum.bytes"])
def test_a_slip_in_a_setting_of_kafka_is_told(slip: str) -> None:
    given = {"kafka.bootstrap.servers": "e:9092", "subscribe": "t", slip: "x"}
    with pytest.raises(ConfigError, match="no such setting") as error:
        read_options(given, streaming=False)
    assert slip in error.value.where


def test_settings_of_kafkas_clients_that_mean_nothing_here_are_no_slips() -> None:
    given = {
        "kafka.bootstrap.servers": "e:9092",
        "subscribe": "t",
        "kafka.request.timeout.ms": "5",
        "kafka.client.id": "x",
    }
    read_options(given, streaming=True)
