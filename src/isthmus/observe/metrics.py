"""The health of flows as Prometheus metrics, and the page that serves them. The only place that knows the library.

Names and meanings follow MirrorMaker 2 where it has the same (record-count, byte-rate, record-age, replication-latency,
checkpoint-latency); docs/metrics.md lists them all. What must stay true: one family per name, whatever the number of
flows; what is not known is left out rather than shown as 0; a flow whose target does not answer is `isthmus_up` 0, and
the others are served. Who looks is left to the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from isthmus.errors import MachineError
from isthmus.observe.health import Ages, FlowHealth, PartitionHealth
from isthmus.observe.window import Verdict

Value = float | int | None
_PARTITION = ("flow", "topic", "partition")
_STATES = ("running", "paused", "not running", "no driver", "changing sides", "failed over", "never ran")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What a look brought: flows that can be told of, and names of those whose target does not answer."""

    flows: Sequence[FlowHealth]
    lost: Sequence[tuple[str, str]] = field(default=())  # flow and target


def metric_families(looked: Looked) -> Iterator[Metric]:
    """Every metric of every flow."""
    yield _up(looked)
    yield _certificates(looked.flows)
    yield from _flow_gauges(looked.flows)
    yield from _counters(looked.flows)
    yield from _partition_gauges(looked.flows)
    yield _labelled("isthmus_partitions", "Partitions by verdict.", "verdict", _verdicts(looked.flows))
    yield _labelled("isthmus_flow_state", "1 for the state that the flow is in.", "state", _states(looked.flows))
    yield _labelled("isthmus_group_places", "Places of consumer groups by state.", "state", _places(looked.flows))
    yield _histogram("isthmus_record_age_seconds", "Age of batches when read from the source.", _ages(looked.flows))
    yield _histogram("isthmus_replication_latency_seconds", "Age of batches when committed.", _latencies(looked.flows))


def _up(looked: Looked) -> Metric:
    found = GaugeMetricFamily("isthmus_up", "Whether a cluster answers.", labels=("flow", "side", "cluster", "tunnel"))
    for each in looked.flows:
        for side, cluster in (("source", each.source), ("target", each.target)):
            found.add_metric((each.flow, side, cluster.alias, cluster.tunnel), float(cluster.answers))
    for flow, target in looked.lost:
        found.add_metric((flow, "target", target, ""), 0.0)
    return found


def _certificates(flows: Iterable[FlowHealth]) -> Metric:
    found = GaugeMetricFamily(
        "isthmus_certificate_expiry_timestamp_seconds",
        "When a certificate on the way to a cluster ends, in seconds since 1970.",
        labels=("flow", "side", "cluster", "whose"),
    )
    for each in flows:
        for side, cluster in (("source", each.source), ("target", each.target)):
            for one in cluster.certificates:
                found.add_metric((each.flow, side, cluster.alias, one.whose), one.until)
    return found


# --- of a flow --------------------------------------------------------------------------------

_GAUGES: tuple[tuple[str, str, Callable[[FlowHealth], Value]], ...] = (
    ("isthmus_lag_records", "Offsets that are not copied yet.", lambda one: one.lag),
    ("isthmus_lag_bytes", "The same in bytes, by the mean size of records.", lambda one: one.lag_bytes),
    (
        "isthmus_lag_seconds",
        "For how long the oldest record that is not copied has waited.",
        lambda one: one.lag_seconds,
    ),
    ("isthmus_record_rate", "Records per second, over the last seconds.", lambda one: one.records_per_s),
    ("isthmus_byte_rate", "Bytes per second, over the last seconds.", lambda one: one.bytes_per_s),
    ("isthmus_driver_silent_seconds", "Since the driver renewed its lease.", lambda one: one.silent_s),
    (
        "isthmus_heartbeat_age_seconds",
        "Since the flow's last heartbeat on the target.",
        lambda one: one.heartbeat_age_s,
    ),
    ("isthmus_gaps", "Gaps on record, of all time.", lambda one: len(one.gaps)),
    (
        "isthmus_gaps_open",
        "Gaps on record that nobody has accepted.",
        lambda one: sum(not g.accepted for g in one.gaps),
    ),
    ("isthmus_lost_offsets", "Source offsets in gaps, as far as known.", lambda one: one.lost),
    ("isthmus_lanes", "Lanes that are known.", lambda one: len(one.lanes)),
    (
        "isthmus_lane_failures",
        "Orders that were lost in this run.",
        lambda one: sum(lane.failures for lane in one.lanes),
    ),
    (
        "isthmus_groups",
        "Consumer groups that are taken along.",
        lambda one: one.groups.groups if one.groups.kept else None,
    ),
    ("isthmus_group_sync_age_seconds", "Since the last good round over groups.", lambda one: one.groups.ago_s),
    ("isthmus_group_sync_failing", "1 if the last round over groups went wrong.", lambda one: bool(one.groups.error)),
    ("isthmus_checkpoint_latency_seconds", "From a look at groups to their checkpoints.", lambda one: _checkpoint(one)),
    (
        "isthmus_throttle_bytes",
        "Bytes per second that are allowed; absent: no limit.",
        lambda one: one.throttle or None,
    ),
)
_COUNTERS: tuple[tuple[str, str, Callable[[FlowHealth], int]], ...] = (
    ("isthmus_record_count", "Records committed on the target.", lambda one: one.totals.records),
    ("isthmus_byte_count", "Bytes of record batches committed.", lambda one: one.totals.bytes),
    ("isthmus_transactions", "Transactions committed.", lambda one: one.totals.transactions),
    ("isthmus_transactions_aborted", "Transactions given up.", lambda one: one.totals.aborts),
    ("isthmus_dead_letters", "Records that went to the dead letters.", lambda one: one.totals.dead_letters),
)


def _checkpoint(one: FlowHealth) -> float | None:
    return one.groups.seconds if one.groups.ago_s is not None else None


def _flow_gauges(flows: Iterable[FlowHealth]) -> Iterator[Metric]:
    for name, told, value in _GAUGES:
        found = GaugeMetricFamily(name, told, labels=("flow",))
        for one in flows:
            if (number := value(one)) is not None:
                found.add_metric((one.flow,), float(number))
        yield found


def _counters(flows: Iterable[FlowHealth]) -> Iterator[Metric]:
    for name, told, value in _COUNTERS:
        found = CounterMetricFamily(name, told, labels=("flow",))
        for one in flows:
            found.add_metric((one.flow,), float(value(one)))
        yield found


# --- of partitions ----------------------------------------------------------------------------

_OF_PARTITIONS: tuple[tuple[str, str, Callable[[PartitionHealth], Value]], ...] = (
    ("isthmus_partition_lag_records", "Offsets that are not copied yet.", lambda one: one.lag),
    ("isthmus_partition_lag_seconds", "For how long the next record has waited.", lambda one: one.lag_seconds),
    ("isthmus_partition_position", "The next source offset to copy.", lambda one: max(0, one.position)),
    (
        "isthmus_partition_verdict",
        "0 ok, 1 unknown, 2 paused, 3 catching up, 4 falling behind, 5 stalled, 6 stopped.",
        lambda one: one.verdict.rank,
    ),
)


def _partition_gauges(flows: Sequence[FlowHealth]) -> Iterator[Metric]:
    for name, told, value in _OF_PARTITIONS:
        found = GaugeMetricFamily(name, told, labels=_PARTITION)
        for flow in flows:
            for one in flow.partitions:
                if (number := value(one)) is not None:
                    found.add_metric((flow.flow, one.topic, str(one.partition)), float(number))
        yield found
    yield _stops(flows)


def _stops(flows: Sequence[FlowHealth]) -> Metric:
    found = GaugeMetricFamily("isthmus_partition_stopped", "1 for a stopped one.", labels=(*_PARTITION, "code"))
    for flow in flows:
        for one in flow.partitions:
            if one.verdict is Verdict.stopped:
                found.add_metric((flow.flow, one.topic, str(one.partition), one.code), 1.0)
    return found


# --- families with one more label -------------------------------------------------------------

_Rows = Iterable[tuple[str, str, float]]


def _labelled(name: str, told: str, label: str, rows: _Rows) -> Metric:
    found = GaugeMetricFamily(name, told, labels=("flow", label))
    for flow, text, value in rows:
        found.add_metric((flow, text), value)
    return found


def _verdicts(flows: Iterable[FlowHealth]) -> _Rows:
    return [(one.flow, verdict.value, one.counts.get(verdict.value, 0)) for one in flows for verdict in Verdict]


def _states(flows: Iterable[FlowHealth]) -> _Rows:
    return [(one.flow, state, float(one.state == state)) for one in flows for state in _STATES]


def _places(flows: Iterable[FlowHealth]) -> _Rows:
    return [(one.flow, state, count) for one in flows for state, count in one.groups.states.items()]


def _ages(flows: Iterable[FlowHealth]) -> list[tuple[str, Ages]]:
    return [(one.flow, one.record_age) for one in flows]


def _latencies(flows: Iterable[FlowHealth]) -> list[tuple[str, Ages]]:
    return [(one.flow, one.latency) for one in flows]


def _histogram(name: str, told: str, rows: list[tuple[str, Ages]]) -> Metric:
    found = HistogramMetricFamily(name, told, labels=("flow",))
    for flow, ages in rows:
        if not ages.counts:
            continue
        buckets, total = [], 0
        for bound, count in zip((*ages.bounds_ms, None), ages.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound is None else str(bound / 1000), float(total)))
        found.add_metric((flow,), buckets, ages.sum_ms / 1000)
    return found


# --- the page ---------------------------------------------------------------------------------


class _Flows(Collector):
    def __init__(self, look: Callable[[], Looked]) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        return metric_families(self._look())


def registry(look: Callable[[], Looked]) -> CollectorRegistry:
    found = CollectorRegistry(auto_describe=False)
    found.register(_Flows(look))
    return found


def metrics_text(looked: Looked) -> str:
    return generate_latest(registry(lambda: looked)).decode()


class Page:
    """Serves metrics until closed; each request looks anew. `with` it."""

    def __init__(self, host: str, port: int, look: Callable[[], Looked]) -> None:
        self._server, self._thread = _started(host, port, registry(look))
        self.port = int(self._server.server_port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _started(host: str, port: int, found: CollectorRegistry) -> tuple[WSGIServer, threading.Thread]:
    try:
        return start_http_server(port, host, found)
    except OSError as error:
        raise MachineError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="another program has the port, or the address is none of this machine's",
            code="METRICS_PORT",
        ) from None
