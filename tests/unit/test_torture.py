"""A storm's schedule, the weather at its doors, and the eyes of its reader; no broker."""

from __future__ import annotations

import gc
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from isthmus.cli.app import app
from isthmus.lab.network import Door, Network, Weather
from isthmus.lab.oracle import Verdict
from isthmus.torture.kinds import kinds
from isthmus.torture.load import Reader, TransactionalWriter, Writer
from isthmus.torture.outcome import Blow, Outcome, Silence, as_json, wrongs
from isthmus.torture.storm import schedule


@given(st.integers(0, 1 << 31))
def test_every_kind_comes_as_often_as_any_other_and_the_seed_decides_the_order(seed: int) -> None:
    names = [kind.name for kind in kinds()]
    drawn = [kind.name for kind in itertools.islice(schedule(kinds(), seed), 3 * len(names))]
    assert all(drawn.count(name) == 3 for name in names)
    assert drawn == [kind.name for kind in itertools.islice(schedule(kinds(), seed), 3 * len(names))]


def test_there_are_more_than_twenty_kinds_and_their_names_differ() -> None:
    names = [kind.name for kind in kinds()]
    assert len(set(names)) == len(names) > 20


# --- doors -------------------------------------------------------------------------------------


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that says everything back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server,), daemon=True).start()
        yield server.getsockname()[1]


def _serve(server: socket.socket) -> None:
    while True:
        try:
            sock, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_say_back, args=(sock,), daemon=True).start()


def _say_back(sock: socket.socket) -> None:
    with sock:
        try:
            while some := sock.recv(1 << 16):
                sock.sendall(some)
        except OSError:
            return


@pytest.fixture
def door(echo: int) -> Iterator[Door]:
    with Network() as network:
        made = network.door()
        made.target = echo
        yield made


def connected(door: Door) -> socket.socket:
    return socket.create_connection(("127.0.0.1", door.port), timeout=60)


def heard(sock: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (some := sock.recv(count - len(found))):
        found += some
    return found


@pytest.mark.parametrize(
    "weather", [Weather(), Weather(delay_s=0.01), Weather(bytes_per_s=1_000_000), Weather(slice=1)], ids=str
)
def test_bytes_stay_whole_and_in_order_whatever_the_weather(door: Door, weather: Weather) -> None:
    door.weather = weather
    said = bytes(range(256)) * 8
    with connected(door) as sock:
        sock.sendall(said)
        assert heard(sock, len(said)) == said


def test_silence_is_felt_by_connections_that_stand_and_nothing_is_lost_after_it(door: Door) -> None:
    with connected(door) as sock:
        sock.sendall(b"before")
        assert heard(sock, 6) == b"before"
        door.weather = Weather(silent=True)
        time.sleep(0.2)  # what is on its way may still pass
        sock.sendall(b"meanwhile")
        sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        door.weather = Weather()
        sock.settimeout(60)
        assert heard(sock, 9) == b"meanwhile"


def test_a_cut_ends_connections_and_lets_nobody_in(door: Door) -> None:
    with connected(door) as sock:
        sock.sendall(b"before")
        assert heard(sock, 6) == b"before"
        door.weather = Weather(cut=True)
        assert heard(sock, 1) == b""
    with connected(door) as sock:
        assert heard(sock, 1) == b""
    door.weather = Weather()
    with connected(door) as sock:
        sock.sendall(b"after")
        assert heard(sock, 5) == b"after"


def test_a_reset_is_seen_as_one(door: Door) -> None:
    door.weather = Weather(reset_after=1_000)
    with connected(door) as sock, pytest.raises(ConnectionResetError):
        for _ in range(1_000):
            sock.sendall(b"x" * 100)
            heard(sock, 100)


def test_a_broker_that_is_not_there_ends_the_connection(door: Door) -> None:
    door.target = 1
    with connected(door) as sock:
        assert heard(sock, 1) == b""


# --- the reader and the verdict ----------------------------------------------------------------


def read(*numbers: int, writer: type[Writer] = Writer) -> Reader:
    reader = Reader("127.0.0.1:1", {"t": writer("127.0.0.1:1", "t", 1, 20)}, {"t": 1})
    for at, number in enumerate(numbers):
        reader._note(("t", 0), b"0 %d 7 ..." % number, at)
    return reader


def test_a_reader_sees_what_is_missing_and_what_comes_again() -> None:
    assert not read(0, 1, 2).slips.any
    assert read(0, 3, 4).slips.missing == 2
    assert read(0, 1, 1).slips.again == 1
    assert read(0, 2, 1).slips.again == 1
    assert not read(0, 5, 9, writer=TransactionalWriter).slips.any  # what it took back is not missed


def test_a_watch_waits_for_what_was_sent_after_it_began() -> None:
    reader = read()
    watch = reader.watch()
    reader._note(("t", 0), b"0 0 %d ..." % (watch.since_ns - 1), 0)
    assert watch.waiting() == [("t", 0)]
    assert watch.seconds == -1
    time.sleep(0.05)
    reader._note(("t", 0), b"0 1 %d ..." % watch.since_ns, 1)
    assert watch.waiting() == []
    assert watch.seconds >= 0.05


def test_silences_are_the_longest_of_each_partition_and_one_that_lasts_still_counts() -> None:
    reader = read()
    silences = reader.listen()
    time.sleep(0.05)
    reader._note(("t", 0), b"0 0 1 ...", 0)
    (first,) = silences.longest()
    assert 0.05 <= first.seconds < 5
    time.sleep(first.seconds + 0.1)
    (second,) = silences.longest()
    assert second.seconds >= first.seconds + 0.1
    assert second.until > first.until
    assert f"{second.seconds:.1f} s (t-0 until " in str(second)


def test_a_silence_counts_from_when_something_was_sent() -> None:
    reader = read()
    silences = reader.listen()
    time.sleep(0.3)
    reader._note(("t", 0), b"0 0 %d ..." % time.monotonic_ns(), 0)
    (found,) = silences.longest()
    assert found.seconds < 0.3


def test_any_difference_makes_a_storm_unproven() -> None:
    good = Verdict(topic="t", partitions=1, records=2, bytes=3)
    bad = Verdict(topic="t", partitions=1, records=2, bytes=3, lost=1, first_difference="partition 0")
    assert wrongs([good], 0, 0, []) == []
    assert len(wrongs([good, bad], 1, 1, ["there"])) == 3


def test_the_figures_of_a_kind_are_put_together() -> None:
    blows = tuple(
        Blow(kind="k", at=n, recovered_s=n, silences=tuple(map(Silence, (n / 4, n / 2, n))), others=2, records=2)
        for n in (1.0, 5.0, 3.0)
    )
    storm = Outcome(seed=1, seconds=2, blows=blows, verdicts=(), missing=0, again=0, starts=1, uses=(), faults=())
    found = as_json(storm)
    assert found["kinds"] == [
        {
            "kind": "k",
            "times": 3,
            "records": 6,
            "missing": 0,
            "again": 0,
            "median_seconds": 3.0,
            "worst_seconds": 5.0,
            "others_seconds": 1.5,
            "others_worst_seconds": 2.5,
        }
    ]
    assert json.dumps(found)


def test_kinds_are_named_and_one_that_does_not_exist_is_refused() -> None:
    named = CliRunner().invoke(app, ["torture", "--list", "--only", "killed", "-o", "json"])
    assert all("killed" in json.loads(line) for line in named.stdout.splitlines())
    assert named.stdout
    refused = CliRunner().invoke(app, ["torture", "--list", "--only", "earthquake"])
    assert refused.exit_code != 0


def test_a_connection_whose_client_is_gone_lives_until_its_broker_has_answered(door: Door) -> None:
    """The collector would end it in the middle, and tell of connections that nobody closed."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        door.target = silent.getsockname()[1]
        with connected(door) as sock:
            sock.sendall(b"asked")
            broker, _ = silent.accept()
        with broker:
            broker.settimeout(60)
            for _ in range(20):
                gc.collect()
                time.sleep(0.01)
            assert broker.recv(5) == b"asked"
