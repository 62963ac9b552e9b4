"""How a flow stands, as it is seen from outside: the one model behind `isthmus status`, its JSON, and the metrics.

Pure values; `engine.outlook` fills them in from the control topic and from both clusters. What must stay true: the JSON
of a value is the value itself (`as_json`, docs/json-output.md); a verdict of a flow is that of its worst partition,
unless the flow as a whole has something worse to say; `cause` gives one code and one exit status for all of it.
`status` holds what a driver knows of its own run; this is what anybody can know.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from isthmus.observe.window import Verdict

RUNNING, PAUSED, NOT_RUNNING, NO_DRIVER = "running", "paused", "not running", "no driver"
CHANGING_SIDES, FAILED_OVER, NEVER_RAN = "changing sides", "failed over", "never ran"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a flow is not well: a code of docs/errors.md, and the exit status that goes with it."""

    code: str
    exit_code: int


WELL = Cause(code="", exit_code=0)
_BY_STATE = {
    FAILED_OVER: Cause(code="FAILED_OVER", exit_code=8),
    CHANGING_SIDES: Cause(code="FAILED_OVER", exit_code=8),
    NEVER_RAN: Cause(code="NOT_RUNNING", exit_code=5),
    NO_DRIVER: Cause(code="NO_DRIVER", exit_code=5),
    NOT_RUNNING: Cause(code="NOT_RUNNING", exit_code=5),
    PAUSED: Cause(code="PAUSED", exit_code=5),
}
_BY_VERDICT = {
    Verdict.stalled: Cause(code="STALLED", exit_code=4),
    Verdict.falling_behind: Cause(code="FALLING_BEHIND", exit_code=4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """One source partition; what is not known is None."""

    topic: str
    partition: int
    verdict: Verdict
    position: int  # the next source offset to copy
    end: int | None = None
    lag: int | None = None  # in offsets
    lag_bytes: int | None = None  # by the mean size of what its lane copied
    lag_seconds: float | None = None  # for how long the next record has been waiting
    lag_seconds_at_least: bool = False
    trend: int = 0  # -1: the lag shrinks, 1: it grows
    records_per_s: float = 0.0
    eta_seconds: float | None = None
    lane: int | None = None
    code: str = ""  # of a stopped one
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """A histogram: `counts[i]` of what took up to `bounds_ms[i]`, the last of what took longer."""

    bounds_ms: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    sum_ms: int = 0

    def quantile_ms(self, share: float) -> int | None:
        """An upper bound of this share of all; None: there is nothing, or it is beyond the last bound."""
        left = share * sum(self.counts)
        for bound, count in zip(self.bounds_ms, self.counts, strict=False):
            left -= count
            if left <= 0 < sum(self.counts):
                return bound
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneHealth:
    """One lane, as it reported last."""

    lane: int
    state: str
    host: str = ""
    pid: int = 0
    reported_ago_s: float | None = None
    epochs: int = 0
    failures: int = 0
    error: str = ""  # of its last failure


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateHealth:
    """A certificate on the way to a cluster. `until`: seconds since 1970."""

    whose: str
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """One side, as this look found it."""

    alias: str
    answers: bool
    code: str = ""
    error: str = ""
    tunnel: str = ""  # the way there, where there is a tunnel
    certificates: tuple[CertificateHealth, ...] = ()  # where whoever looks asked for them


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsHealth:
    """The last round over consumer groups."""

    kept: bool = False  # whether the flow takes groups along at all
    ago_s: float | None = None  # since the last round that went well; None: there was none
    seconds: float = 0.0  # it took so long: how old a checkpoint is when it is written
    groups: int = 0
    states: dict[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What lanes committed, as far back as the control topic remembers; they only rise while somebody looks on."""

    records: int = 0
    bytes: int = 0
    transactions: int = 0
    aborts: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GapHealth:
    """Something that was lost, or is not a copy: as `isthmus gaps` lists it."""

    topic: str
    partition: int
    code: str
    what: str
    lost: int
    accepted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowHealth:
    """A flow at one moment."""

    flow: str
    time: float
    state: str
    source: ClusterHealth
    target: ClusterHealth
    replicator: str = ""  # its other name, as kafka-cloud-replicator has it
    driver: str = ""  # who drives it, or did
    here: bool = False  # on this machine
    silent_s: float | None = None  # since its lease was renewed
    heartbeat_age_s: float | None = None  # since its last heartbeat on the target
    paused_topics: tuple[str, ...] = ()
    throttle: int = 0  # bytes per second; 0: none
    partitions: tuple[PartitionHealth, ...] = ()
    lanes: tuple[LaneHealth, ...] = ()
    most_lanes: int = 0  # that may come with lag; 0: none comes or goes
    gaps: tuple[GapHealth, ...] = ()
    groups: GroupsHealth = GroupsHealth()
    totals: Totals = Totals()
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    record_age: Ages = Ages()  # of records when they were read from the source
    latency: Ages = Ages()  # of records when they were committed on the target
    error: str = ""  # the last one that concerned the whole flow
    code: str = ""
    events: tuple[str, ...] = ()
    spark_page: str = ""  # the address of Spark's own page, if it has one

    @property
    def verdict(self) -> Verdict:
        """Of the worst partition; those that are paused count if there are no others."""
        found = {each.verdict for each in self.partitions} or {Verdict.unknown}
        return max(found - {Verdict.paused} or found, key=lambda one: one.rank)

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(each.verdict.value for each in self.partitions))

    @property
    def lag(self) -> int:
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def lag_bytes(self) -> int:
        return sum(each.lag_bytes or 0 for each in self.partitions)

    @property
    def lag_seconds(self) -> float | None:
        return max((each.lag_seconds for each in self.partitions if each.lag_seconds is not None), default=None)

    @property
    def lost(self) -> int:
        return sum(gap.lost for gap in self.gaps)

    @property
    def cause(self) -> Cause:
        """What to act upon first: what needs a decision, then that nobody copies, then what slows it down."""
        stopped = next((each for each in self.partitions if each.verdict is Verdict.stopped), None)
        if stopped is not None:
            return Cause(code=stopped.code, exit_code=9)
        if self.state in _BY_STATE:
            return _BY_STATE[self.state]
        if not self.source.answers:
            return Cause(code=self.source.code, exit_code=6)
        return _BY_VERDICT.get(self.verdict, WELL)

    def as_json(self) -> dict[str, Any]:
        """The documented form."""
        return {**asdict(self), **self.concluded()}

    def concluded(self) -> dict[str, Any]:
        """What follows from the rest: the part of the documented form that is no field."""
        cause = self.cause
        sums = {
            "lag": self.lag,
            "lag_bytes": self.lag_bytes,
            "lag_seconds": self.lag_seconds,
            "lost_offsets": self.lost,
        }
        told = {"verdict": self.verdict.value, "cause": cause.code, "exit_status": cause.exit_code}
        return {**told, **sums, "counts": self.counts}
