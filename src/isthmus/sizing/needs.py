"""What one load needs, computed from constants: pure arithmetic, every figure explained by one line of it.

A lane is one process with one event loop, so it has one core at most; what it copies is bounded by the CPU that its
bytes, batches and transactions cost, and by how much may be on its way at once over the distance. What must stay true:
what cannot be done is refused with the bound that forbids it; a figure is a need for the rate given, with lanes busy
for no more than BUSY of their time, because they must also catch up. Figures of brokers are a hint: they were measured
on one machine.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from isthmus.errors import ConfigError
from isthmus.model import Tuning
from isthmus.sizing.constants import CODECS, Constants

BUSY = 0.6  # of a lane's core: the rest is for catching up, and for what was not foreseen
STOOD_STILL_S = 600.0  # after so long, how long does it take to catch up?
_MERGED_BYTES = 256 << 10  # what small batches become (`engine.packing`)
_IN_FLIGHT = 5  # produce requests of a lane to one broker (`engine.outbox`)
_TUNING = Tuning()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is to be copied. Bytes are those of keys and values; `batch` is stored bytes."""

    rate: float  # bytes per second
    partitions: int
    record: float = 1000.0
    batch: float = 16_384.0
    codec: str = "lz4"
    rtt_s: float = 0.001
    far: str = "source"  # the side that is `rtt_s` away from the lanes; the other is near
    tls: bool = False
    tunnel: bool = False
    latency_s: float = 0.0  # wished; 0: whatever it is
    cores_per_executor: int = 2
    brokers: int = 3  # of each cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Sizes in MB of 10^6 bytes, rates in MB/s, times in seconds."""

    records_per_s: float
    stored_mb_per_s: float
    cpu_s_per_gb: float  # of lanes, per GB of keys and values
    lane_mb_per_s: float  # what one lane carries at BUSY, of keys and values
    partition_mb_per_s: float  # what one partition can carry at most
    limited_by: str  # what bounds a lane
    lanes: int
    cores: int
    executors: int
    executor_mb: int  # each: JVM and lanes
    driver_mb: int
    network_in_mbit: float
    network_out_mbit: float
    transactions_per_s: float
    broker_cores: float  # of both clusters
    latency_p50_s: float
    latency_p99_s: float
    lag_records: float
    catch_up_s: float  # after having stood still for STOOD_STILL_S
    tunnel_exit_cores: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def size(load: Load, constants: Constants) -> Need:
    """Raises ConfigError for what cannot be meant, or cannot be done."""
    _refuse_senseless(load)
    ratio = constants.ratio[load.codec]
    # Lanes commit some times a second, whatever they carry: the first guess says how many of them there are.
    cpu = cpu_per_gb(load, constants, max(1.0, load.rate * cpu_per_gb(load, constants) / BUSY / 1e9))
    by_cpu, by_way = BUSY * 1e9 / cpu, _by_way(load, ratio)
    lane = min(by_cpu, by_way)
    partition = min(by_cpu / BUSY, _partition_limit(load, ratio))
    _refuse_too_much(load, partition)
    lanes = min(load.partitions, max(1, math.ceil(load.rate / lane)))
    seconds = _latency(load, constants)
    executors = -(-lanes // load.cores_per_executor)
    stored = load.rate * ratio
    transactions = lanes * transactions_per_s(constants)
    spare = lanes * lane / BUSY - load.rate
    return Need(
        records_per_s=load.rate / load.record,
        stored_mb_per_s=stored / 1e6,
        cpu_s_per_gb=round(cpu, 2),
        lane_mb_per_s=lane / 1e6,
        partition_mb_per_s=partition / 1e6,
        limited_by="CPU" if by_cpu <= by_way else "what may be on its way at once",
        lanes=lanes,
        cores=lanes,
        executors=executors,
        executor_mb=round(constants.jvm_mb + min(lanes, load.cores_per_executor) * constants.lane_mb),
        driver_mb=round(constants.jvm_mb + constants.driver_mb),
        network_in_mbit=stored * 8 / 1e6,
        network_out_mbit=stored * 8 / 1e6,
        transactions_per_s=transactions,
        broker_cores=round(load.rate / 1e9 * constants.broker_s_per_gb, 2),
        latency_p50_s=seconds[0],
        latency_p99_s=seconds[1],
        lag_records=load.rate / load.record * seconds[0],
        catch_up_s=STOOD_STILL_S * load.rate / spare if spare > 0 else math.inf,
        tunnel_exit_cores=round(stored / 1e9 * constants.tunnel_exit_s_per_gb, 2) if load.tunnel else 0.0,
    )


def cpu_per_gb(load: Load, constants: Constants, lanes: float = 1.0, busy: float = BUSY) -> float:
    """CPU-seconds of so many lanes, each this busy, for a GB of keys and values."""
    ratio = constants.ratio[load.codec]
    size = max(load.batch, load.record * ratio)
    copying = constants.passed_s_per_gb * ratio
    if size < _TUNING.merge_below_bytes:
        copying += constants.merged_s_per_gb[load.codec] + 1e9 * ratio / size * constants.batch_s
    secured = (2 * load.tls + load.tunnel) * ratio * constants.tls_s_per_gb
    commits = lanes * transactions_per_s(constants, busy) * constants.transaction_s
    touches = touches_per_s(load, constants, busy) * constants.touch_s
    return copying + secured + 1e9 / load.rate * (commits + touches)


def transactions_per_s(constants: Constants, busy: float = BUSY) -> float:
    """Of one lane: it commits whenever nothing more is ready, so seldom when there always is."""
    return max(1000 / _TUNING.commit_interval_ms, constants.transactions_per_s * (1 - busy))


def touches_per_s(load: Load, constants: Constants, busy: float = BUSY) -> float:
    """Each transaction touches the partitions that have something: not more of them than batches came."""
    batches = load.rate * constants.ratio[load.codec] / load.batch
    return min(load.partitions * transactions_per_s(constants, busy), batches)


def _by_way(load: Load, ratio: float) -> float:
    """Bytes per second of one lane, as far as requests on their way bound it."""
    if load.far == "source":
        return load.brokers * _TUNING.fetch_bytes / load.rtt_s / ratio
    return load.brokers * _IN_FLIGHT * _TUNING.fetch_bytes / load.rtt_s / ratio


def _partition_limit(load: Load, ratio: float) -> float:
    """Bytes per second of one partition: one answer, or five batches, for every round trip."""
    if load.far == "source":
        return _TUNING.fetch_partition_bytes / load.rtt_s / ratio
    batch = _MERGED_BYTES if load.batch < _TUNING.merge_below_bytes else load.batch
    return _IN_FLIGHT * batch / load.rtt_s / ratio


def _latency(load: Load, constants: Constants) -> tuple[float, float]:
    """What was measured without a distance, and the ways over it: half a round trip for what is read, or one for the
    batches and one for the commit."""
    way = load.rtt_s * (0.5 if load.far == "source" else 2.0)
    return constants.latency_p50_ms / 1000 + way, constants.latency_p99_ms / 1000 + 2 * way


# -- what cannot be ------------------------------------------------------------------------------


def _refuse_senseless(load: Load) -> None:
    for name, value in (
        ("--rate", load.rate),
        ("--record", load.record),
        ("--batch", load.batch),
        ("--partitions", load.partitions),
        ("--rtt", load.rtt_s),
        ("--cores-per-executor", load.cores_per_executor),
        ("--brokers", load.brokers),
    ):
        if not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"{name} must be above 0, not {value:g}", where=name)
    if load.codec not in CODECS:
        raise ConfigError(f"{load.codec} is no codec", where="--codec", hint=f"choose from {', '.join(CODECS)}")
    if load.far not in ("source", "target"):
        raise ConfigError(f"{load.far} is no side", where="--far", hint="source or target")


def _refuse_too_much(load: Load, partition: float) -> None:
    each = load.rate / load.partitions
    if each > partition:
        window = _TUNING.fetch_partition_bytes if load.far == "source" else _IN_FLIGHT * _MERGED_BYTES
        raise ConfigError(
            f"a partition would have to carry {each / 1e6:,.1f} MB/s, and one carries {partition / 1e6:,.1f} at most",
            where="--rate, --partitions",
            hint=f"it is read by one lane, which has one core, and at most {window >> 10} KB of it are on their way in "
            f"a round trip of {load.rtt_s * 1000:g} ms: use at least {math.ceil(load.rate / partition):,} partitions, "
            "or lanes nearer to that side",
        )
    latency = _least_latency(load)
    if 0 < load.latency_s < latency:
        raise ConfigError(
            f"{load.latency_s * 1000:g} ms cannot be had: the distance alone takes {latency * 1000:g} ms",
            where="--latency",
            hint="lanes beside the target need half a round trip, lanes beside the source two",
        )


def _least_latency(load: Load) -> float:
    return load.rtt_s * (0.5 if load.far == "source" else 2.0)
