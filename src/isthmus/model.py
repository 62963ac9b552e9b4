"""Values that every layer speaks in: clusters, flows, topics, partitions. Imports nothing of ours but `security`.

All are frozen and picklable, because orders built of them travel to executors. Nothing here does
I/O or knows the clock. What a flow *should* do lives here; what it *has done* lives in progress.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from isthmus.security import IN_CLEAR, Security

NO_ID = uuid.UUID(int=0)
REGISTER = "mm2-isthmus-producers.internal"  # one in each cluster: producer ids of every flow into it
# How the names of client properties begin that are about security.
SECURITY_SETTINGS = ("security.", "sasl.", "ssl.", "tunnel.")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition of a topic, by the name that its own cluster uses."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """How to reach one cluster. `settings` are Kafka client properties as they were given; what they say about
    security counts only in `security`, which `config` makes of them."""

    alias: str
    bootstrap: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    security: Security = IN_CLEAR

    def for_travel(self) -> Cluster:
        """Without the settings that `security` was made of: they hold secrets in clear."""
        kept = {name: value for name, value in self.settings.items() if not name.startswith(SECURITY_SETTINGS)}
        return replace(self, settings=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Which topics a flow carries: comma-list regexes already split; full match; excludes win."""

    include: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = (r".*[\-\.]internal", r".*\.replica", r"__.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """How a topic is called on the target: `<source alias><separator><topic>`, unchanged, or `<prefix><topic><suffix>`.

    Under "rename", a topic that `exact` names takes that name instead. The separator also stands in the names of
    MirrorMaker 2's internal topics, unless `internal_separator` differs.
    """

    policy: str = "default"  # "default" | "identity" | "rename"
    separator: str = "."
    prefix: str = ""
    suffix: str = ""
    internal_separator: str = ""  # empty: the same
    exact: tuple[tuple[str, str], ...] = ()  # (source name, target name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Which consumer groups a flow takes along, as `Topics` for topics."""

    include: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ("console-consumer-.*", "connect-.*", "__.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """What is kept in step beside records. Intervals bound how late a change is seen at most."""

    configs: bool = True
    configs_seconds: float = 10.0
    config_exclude: tuple[str, ...] = (
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    )
    defaults_from: str = "target"  # "target" | "source": whose default counts where the source sets nothing
    acls: bool = False
    acls_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mm2Topics:
    """MirrorMaker 2's own topics, for its tools: which are kept, where, how often they are written."""

    heartbeats: bool = True
    heartbeat_seconds: float = 1.0
    carry_heartbeats: bool = True
    offset_syncs: bool = True
    offset_syncs_on: str = "source"  # "source" | "target"
    offset_lag_max: int = 100
    checkpoints: bool = True
    checkpoint_seconds: float = 2.0
    group_offsets: bool = False  # also write the groups' offsets on the target
    group_offsets_seconds: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where topics begin that have no progress yet; the first entry whose `topics` matches counts."""

    topics: str = ".*"
    at: str = "earliest"  # "earliest" | "latest" | "timestamp" | "offsets"
    timestamp_ms: int = -1
    offsets: tuple[tuple[int, int], ...] = ()  # (partition, offset); others begin at the earliest


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Records that flows brought into the source from this cluster are not carried on, in these of its topics."""

    origin: str  # alias
    topics: Topics = Topics(exclude=())
    brings: Topics = Topics(exclude=())  # what the flow from there into the source carries by now, as far as known


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """What happens to records on their way, by Spark: SQL over the view `records`, or a function of DataFrames."""

    sql: str = ""
    function: str = ""  # "module:function"
    on_error: str = "stop"  # "stop" | "dead_letter": what to do with a record that the transform fails on
    most_records: int = 1_000_000  # offsets that one transaction may hold
    tasks: int = 0  # how many read and write at once; 0: as many as there are cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Knobs with measured defaults; none of them changes what is delivered, only when."""

    epoch_seconds: float = 300.0
    refresh_seconds: float = 3.0
    transaction_timeout_ms: int = 60_000
    commit_interval_ms: int = 500
    commit_bytes: int = 64 << 20
    fetch_bytes: int = 16 << 20
    fetch_partition_bytes: int = 2 << 20
    fetch_wait_ms: int = 500
    queue_bytes: int = 64 << 20
    merge_below_bytes: int = 32 << 10
    request_timeout_ms: int = 30_000
    progress_partitions: int = 1  # of a progress topic that is created: each that a commit touches costs a marker


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Lanes that come with lag and go when they are idle, between `least` and the flow's `lanes`."""

    least: int = 0  # lanes that are always there; 0: all of them, and none comes or goes
    after_seconds: float = 10.0  # of growing lag, until lanes come
    shrink_after_seconds: float = 300.0  # in which nothing waited, until lanes go


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One direction of replication: everything wanted of it, nothing of how far it got."""

    source: Cluster
    target: Cluster
    topics: Topics = Topics()
    naming: Naming = Naming()
    lanes: int = 1  # the most, where they come and go
    growth: Growth = Growth()
    replication_factor: int = -1
    internal_replication_factor: int = -1
    on_gap: str = "stop"  # "stop" | "skip": what to do when retention overtook us
    on_too_large: str = (
        "stop"  # "stop" | "dead_letter": what to do with a single record that the target refuses as such
    )
    on_foreign_write: str = "stop"  # "stop" | "allow": what to do when somebody else writes into a copy
    groups: Groups = Groups()
    sync: Sync = Sync()
    mm2_topics: Mm2Topics = Mm2Topics()
    starts: tuple[Start, ...] = ()
    compression: str = ""  # "" keeps what the source has | none | gzip | snappy | lz4 | zstd
    throttle: int = 0  # bytes per second over all lanes; 0: none
    cut_from: tuple[str, ...] = ()  # aliases: as `cuts` for all topics, asked for by the file
    cuts: tuple[Cut, ...] = ()  # concluded from the other flows of the file
    tuning: Tuning = Tuning()
    transform: Transform | None = None
    registers: bool = True  # False: another flow goes on exactly behind what this one brings, so nobody need know it

    @property
    def name(self) -> str:
        return f"{self.source.alias}->{self.target.alias}"

    @property
    def replicator(self) -> str:
        """By which kafka-cloud-replicator shows it."""
        return f"replicator-{self.source.alias}"

    @property
    def first_lanes(self) -> int:
        """Lanes that are always there: it begins with these."""
        return min(self.growth.least, self.lanes) or self.lanes

    @property
    def grows(self) -> bool:
        return self.first_lanes < self.lanes and self.transform is None

    def with_all_lanes(self) -> Flow:
        """None comes or goes."""
        return replace(self, growth=Growth())

    @property
    def progress_topic(self) -> str:
        """MirrorMaker 2's Connect offsets topic, on the target."""
        return f"mm2-offsets.{self.source.alias}.internal"

    @property
    def control_topic(self) -> str:
        return f"mm2-isthmus.{self.source.alias}.internal"

    @property
    def dead_letter_topic(self) -> str:
        """On the target: records that are too large for their own topic there, where `on_too_large` says so."""
        return f"isthmus.{self.source.alias}.dead-letters"

    @property
    def index_topic(self) -> str:
        """Which offset of the source is which of the target."""
        return f"mm2-isthmus-index.{self.source.alias}.internal"

    @property
    def keeps_index(self) -> bool:
        return self.mm2_topics.offset_syncs or self.mm2_topics.checkpoints or self.mm2_topics.group_offsets

    @property
    def all_cuts(self) -> tuple[Cut, ...]:
        return (*(Cut(origin=alias) for alias in self.cut_from), *self.cuts)

    @property
    def guards_copies(self) -> bool:
        """Whether a copy is ours alone. Two ways under one name, both clusters' applications write into it."""
        return self.on_foreign_write == "stop" and not self.all_cuts

    @property
    def keeps_register(self) -> bool:
        """Where names do not tell where a topic came from, whoever reads the target knows our batches by their id."""
        return self.registers and (self.naming.policy != "default" or bool(self.all_cuts))

    def transactional_id(self, lane: int, turn: int) -> str:
        return f"isthmus.{self.source.alias}.{lane}.{'ab'[turn]}"
