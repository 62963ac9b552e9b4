"""What a cluster cannot do for a flow, told by what its brokers offer, before anything is tried.

One table per side. A need names the request that it rests on, the release that brought it, and what its absence
means: `blocks` (a run is refused), `limits` (something is left undone), `note` (done in another way, nothing is
lost). A need may concern some flows only. What must stay true: findings rest on ApiVersions of a connected client
alone, so that asking costs nothing and changes nothing. Who shows them (plan, run, doctor) decides how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from isthmus.errors import IsthmusError, SourceError, TargetError
from isthmus.model import Flow
from isthmus.wire.apis import Api, at_least, offers
from isthmus.wire.link import Offer


class Severity(StrEnum):
    blocks = "blocks"
    limits = "limits"
    note = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a cluster cannot do, what that means for the flow, and what to do about it."""

    cluster: str  # alias
    side: str  # "source" | "target"
    severity: Severity
    code: str  # stable
    text: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.side} {self.cluster}: {self.text}" + (f"; {self.hint}" if self.hint else "")


def _always(_: Flow) -> bool:
    return True


def _writes_to_source(flow: Flow) -> bool:
    kept = flow.mm2_topics
    return kept.heartbeats or (kept.offset_syncs and kept.offset_syncs_on == "source")


class _Need(NamedTuple):
    api: Api
    version: int
    since: str  # the release that brought it
    severity: Severity
    code: str
    text: str
    hint: str = ""
    concerns: Callable[[Flow], bool] = _always


_SOURCE = (
    _Need(
        *(Api.LIST_OFFSETS, 1, "0.10.1", Severity.blocks, "TOO_OLD"),
        "its brokers are too old to be read from: 0.10.1 is the oldest",
        "upgrade the brokers",
    ),
    _Need(
        *(Api.FETCH, 4, "0.11", Severity.note, "OLD_FORMAT"),
        "records have the message formats of before 0.11 and are re-encoded on the way (costs CPU; nothing changes for "
        "readers)",
    ),
    _Need(
        *(Api.PRODUCE, 3, "0.11", Severity.limits, "NO_SOURCE_WRITES"),
        "MirrorMaker 2's heartbeats and offset-syncs cannot be written there",
        "switch heartbeats off and write offset-syncs to the target",
        _writes_to_source,
    ),
    _Need(
        *(Api.METADATA, 10, "2.8", Severity.note, "NO_TOPIC_IDS"),
        "topics have no ids: one that was deleted and made anew under its name is told by the fingerprint of the last "
        "batch copied, at the next start or as soon as the source answers anything unusual",
    ),
    _Need(
        *(Api.FETCH, 12, "2.7", Severity.note, "NO_TRUNCATION_ANSWER"),
        "brokers do not tell that their log was truncated (unclean leader election): that, too, is told by the "
        "fingerprint",
    ),
    _Need(
        *(Api.DESCRIBE_CONFIGS, 0, "0.11", Severity.limits, "NO_SETTINGS"),
        "settings of topics cannot be read: target topics are created with the target's defaults and do not follow",
        "set them on the target by hand",
        lambda flow: flow.sync.configs,
    ),
    _Need(
        *(Api.DESCRIBE_CONFIGS, 1, "1.1", Severity.note, "SETTINGS_ORIGIN"),
        "brokers do not tell a default from what their own configuration file sets: both count as default",
        "",
        lambda flow: flow.sync.configs,
    ),
    _Need(
        *(Api.DESCRIBE_ACLS, 0, "0.11", Severity.limits, "NO_ACCESS_RULES"),
        "access rules (ACLs) cannot be read: none is copied",
        "add them on the target by hand, or switch the copying of access rules off",
        lambda flow: flow.sync.acls,
    ),
)

_TARGET = (
    _Need(
        *(Api.INIT_PRODUCER_ID, 0, "0.11", Severity.blocks, "NO_TRANSACTIONS"),
        "it has no transactions, so nothing can be written exactly once",
        "upgrade the brokers; such a cluster can only be a source",
    ),
    _Need(
        *(Api.CREATE_TOPICS, 4, "2.4", Severity.blocks, "NO_DEFAULT_REPLICAS"),
        "it cannot be asked for its default number of replicas",
        "set replication_factor and internal_replication_factor (replication.factor, "
        "offset.storage.replication.factor)",
        lambda flow: flow.replication_factor < 0 or flow.internal_replication_factor < 0,
    ),
    _Need(
        *(Api.CREATE_PARTITIONS, 0, "1.0", Severity.limits, "NO_GROWTH"),
        "partitions cannot be added to a topic: where a source topic grows, its new partitions stop",
        "add them on the target by hand (kafka-topics --alter)",
    ),
    _Need(
        *(Api.PRODUCE, 7, "2.1", Severity.limits, "NO_ZSTD"),
        "it does not know zstd: partitions with such batches stop",
        "set compression to another codec",
        lambda flow: flow.compression in ("", "zstd"),
    ),
    _Need(
        *(Api.INCREMENTAL_ALTER_CONFIGS, 0, "2.3", Severity.limits, "NO_SETTING_CHANGES"),
        "single settings cannot be changed: topics are created with the source's, but later changes do not follow",
        "change them on the target by hand",
        lambda flow: flow.sync.configs,
    ),
    _Need(
        *(Api.DESCRIBE_ACLS, 1, "2.0", Severity.limits, "NO_ACCESS_RULES"),
        "access rules (ACLs) cannot be added: none is copied",
        "add them by hand, or switch the copying of access rules off",
        lambda flow: flow.sync.acls,
    ),
    _Need(
        *(Api.METADATA, 10, "2.8", Severity.limits, "NO_TOPIC_IDS"),
        "topics have no ids: that a target topic was deleted and made anew is not noticed",
        "do not delete copies while the flow is in use, or start with --forget afterwards",
    ),
    _Need(
        *(Api.LIST_TRANSACTIONS, 0, "3.0", Severity.note, "NO_LIST_OF_TRANSACTIONS"),
        "it does not list transactional ids: those that earlier runs had are known from the control topic only",
    ),
)


def source_lacks(offer: Offer, flow: Flow) -> tuple[Finding, ...]:
    """What the source of this flow cannot do; `offer` is that of a connected client."""
    return tuple(_finding(need, offer, flow.source.alias, "source") for need in _missing(_SOURCE, offer, flow))


def target_lacks(offer: Offer, flow: Flow) -> tuple[Finding, ...]:
    """What the target of this flow cannot do; `offer` is that of a connected client."""
    return tuple(_finding(need, offer, flow.target.alias, "target") for need in _missing(_TARGET, offer, flow))


def lacking(source: Offer, target: Offer, flow: Flow) -> tuple[Finding, ...]:
    """What either cluster of this flow cannot do."""
    return source_lacks(source, flow) + target_lacks(target, flow)


def refuse_blocked(findings: Iterable[Finding]) -> None:
    """Raise for the first finding that makes a run impossible."""
    for each in findings:
        if each.severity is Severity.blocks:
            kind: type[IsthmusError] = SourceError if each.side == "source" else TargetError
            raise kind(each.text, where=f"{each.side} cluster {each.cluster}", hint=each.hint, code=each.code)


def _missing(needs: Iterable[_Need], offer: Offer, flow: Flow) -> list[_Need]:
    return [need for need in needs if need.concerns(flow) and not offers(offer, need.api, need.version)]


def _finding(need: _Need, offer: Offer, alias: str, side: str) -> Finding:
    text = f"{need.text} (that came with {need.since}, this is about {at_least(offer)})"
    return Finding(cluster=alias, side=side, severity=need.severity, code=need.code, text=text, hint=need.hint)
