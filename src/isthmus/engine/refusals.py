"""What a refusal means for a partition: try again, or stop it loudly. One table for each side.

A code that heals (leaders move, replicas are few) is tried again without end, because lag is visible and
loss is not. A code that may heal is tried a few times. Every other one stops that partition, and only
that one (I7), with what happened, where, and what to do.
"""

from __future__ import annotations

from isthmus.engine.orders import Range, Stop
from isthmus.engine.packing import Packed
from isthmus.engine.track import Track
from isthmus.model import TopicPartition
from isthmus.wire import codes
from isthmus.wire.fetch import Fetched
from isthmus.wire.produce import Landed

_STRIKES = 3
# Tried a few times: a merged batch may have been too large, a damaged fetch may come whole the next time.
_MAY_HEAL = frozenset(
    {
        codes.CORRUPT_MESSAGE,
        codes.MESSAGE_TOO_LARGE,
        codes.RECORD_LIST_TOO_LARGE,
        codes.INVALID_RECORD,
        codes.UNKNOWN_SERVER,
        codes.UNKNOWN_TOPIC,
        codes.OUT_OF_ORDER_SEQUENCE,
        codes.INVALID_TXN_STATE,
        codes.TRANSACTION_ABORTABLE,
        codes.CONCURRENT_TRANSACTIONS,
        codes.UNKNOWN_PRODUCER_ID,
    }
)
# Likewise of the source: another replica may have it whole, a broker may be about to fail or to learn of a topic.
_MAY_BE_READ = frozenset({codes.CORRUPT_MESSAGE, codes.UNKNOWN_SERVER, codes.INCONSISTENT_TOPIC_ID})
TOO_LARGE = frozenset({codes.MESSAGE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE})
_OF_RECORDS = TOO_LARGE | {codes.CORRUPT_MESSAGE, codes.INVALID_RECORD, codes.INVALID_TIMESTAMP}
_HINTS = {
    codes.MESSAGE_TOO_LARGE: "raise max.message.bytes of the target topic to that of the source topic, "
    "or set on_too_large: dead_letter",
    codes.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the target topic",
    codes.INVALID_TIMESTAMP: "raise message.timestamp.before.max.ms or .after.max.ms of the target topic",
    codes.INVALID_RECORD: "a compacted target topic refuses records without a key: set its cleanup.policy to delete",
    codes.TOPIC_AUTHORIZATION_FAILED: "grant WRITE and DESCRIBE on the target topic",
    codes.UNKNOWN_TOPIC_ID: "the target topic was deleted or made anew: what was copied is gone with it",
    codes.CORRUPT_MESSAGE: "the batch is damaged on the source: compare its replicas",
}


def may_be_taken() -> frozenset[int]:
    """Codes after which the same may be taken the next time."""
    return codes.MOVING | _MAY_HEAL


# A payload that is passed on keeps the checksum of its first producer, and it was read anew for every try: what the
# target finds damaged is so on the source.
_STOPS = {codes.UNKNOWN_TOPIC_ID: "TARGET_RECREATED", codes.CORRUPT_MESSAGE: "CORRUPT_BATCH"}


def judge_produce(
    track: Track, result: Landed, piece: Packed | None = None, *, dead_letters: bool = False
) -> Stop | None:
    """None: try again. Marks the track so that a second try is a different one. `piece` is what was refused."""
    if result.error in codes.MOVING:
        track.refuse()
        return None
    if piece is not None and result.error in TOO_LARGE and _is_made_smaller(track, result, piece, dead_letters):
        return None
    if result.error in _MAY_HEAL and track.strikes < _STRIKES:
        track.strike()
        return None
    return _refused(track, result, piece)


def _is_made_smaller(track: Track, result: Landed, piece: Packed, dead_letters: bool) -> bool:
    """Whether the next try differs: fewer records in a batch, or the record among the dead letters."""
    if piece.records > 1 and not track.merging:
        track.most_records = piece.records // 2
        return True
    if piece.records > 1 or piece.is_letter or not dead_letters:
        return False
    track.letters[piece.first] = codes.name(result.error)
    # It may have been this record alone that larger batches were refused for.
    track.most_records, track.merging = track.fits, False
    return True


def _refused(track: Track, result: Landed, piece: Packed | None) -> Stop:
    offset = track.committed if piece is None else piece.first
    what = f"offset {offset}: {codes.name(result.error)} {result.message}".strip()
    if piece is not None and piece.is_letter:
        return Stop(
            source=track.assignment.source,
            code="TARGET_REFUSED",
            message=f"the dead-letter topic {result.tp.topic} refused {what}",
            hint="see its settings, first max.message.bytes, and the target broker's log",
            lost=_refused_range(result, piece),
        )
    return Stop(
        source=track.assignment.source,
        code=_STOPS.get(result.error, "TARGET_REFUSED"),
        message=f"the target refused {what}",
        hint=_HINTS.get(result.error, "see the target broker's log"),
        lost=_refused_range(result, piece),
    )


def _refused_range(result: Landed, piece: Packed | None) -> Range | None:
    """What could be given up: records that are refused as such, and not for want of rights or of a topic."""
    return (piece.first, piece.past) if piece is not None and result.error in _OF_RECORDS else None


def judge_fetch(track: Track, fetched: Fetched, *, still_there: bool) -> Stop | None:
    """None: try again after a metadata refresh. `still_there`: the metadata knows the topic under our id.

    A broker that has just started may not know a topic yet, so its word alone does not end a partition.
    """
    source = track.assignment.source
    if fetched.error in codes.MOVING:
        track.strikes = 0
        return None
    if fetched.error in (codes.UNKNOWN_TOPIC, codes.UNKNOWN_TOPIC_ID) and (still_there or track.strikes < _STRIKES):
        track.strikes += 1
        return None
    if fetched.error in (codes.UNKNOWN_TOPIC, codes.UNKNOWN_TOPIC_ID):
        return Stop(
            source=source,
            code="SOURCE_GONE",
            message=f"the source topic was deleted or made anew after offset {track.committed}",
            hint=f"see `isthmus resolve FILE --topic {source.topic}`",
            lost=(track.committed, -1),
        )
    if fetched.error in _MAY_BE_READ and track.strikes < _STRIKES:
        track.strikes += 1
        return None
    return Stop(
        source=source,
        code="SOURCE_REFUSED",
        message=f"the source refused offset {track.position}: {codes.name(fetched.error)}",
        hint="grant READ and DESCRIBE on the topic"
        if fetched.error == codes.TOPIC_AUTHORIZATION_FAILED
        else "see the source broker's log",
    )


def diverged(track: Track, epoch: int, end: int) -> Stop | None:
    """The source's log was cut below what we have copied: records on the target are no longer on the source.

    None: it was cut behind that. What only waits to be written does not count.
    """
    cut = track.reigns.newest.cut(epoch, end)
    return truncated(track.assignment.source, epoch, cut, track.sent) if cut < track.sent else None


def truncated(source: TopicPartition, epoch: int, cut: int, copied: int) -> Stop:
    """`cut`: where the log and our copy part."""
    return Stop(
        source=source,
        code="TRUNCATED",
        message=f"the source's log was truncated at {cut} (leader epoch {epoch}), we had copied up to {copied}",
        hint="an unclean leader election lost records on the source; the target keeps what it has: "
        f"see `isthmus resolve FILE --topic {source.topic}`",
        lost=(cut, copied),
    )


def foreign_history(track: Track) -> Stop:
    """The leader never had the epoch of the last batch that we copied."""
    return Stop(
        source=track.assignment.source,
        code="TRUNCATED",
        message=f"the source does not know leader epoch {track.reigns.newest.epoch} of what we copied before "
        f"{track.position}",
        hint="an unclean leader election replaced records on the source; the target keeps what it has: "
        f"see `isthmus resolve FILE --topic {track.assignment.source.topic}`",
    )


def above_end(track: Track, end: int) -> Stop:
    return Stop(
        source=track.assignment.source,
        code="TRUNCATED",
        message=f"offset {track.position} is beyond the source's end {end}: its log was truncated or made anew",
        hint=f"the target keeps what it has: see `isthmus resolve FILE --topic {track.assignment.source.topic}`",
        lost=(end, track.position),
    )


def another_log(track: Track, offset: int) -> Stop:
    """Where topics have no ids, the last batch copied is what a log is known by; there is another in its place."""
    topic = track.assignment.source.topic
    return Stop(
        source=track.assignment.source,
        code="SOURCE_RECREATED",
        message=f"the source holds another batch at offset {offset} than was copied: topic {topic} was deleted and "
        "made anew, or its log was truncated and written again",
        hint=f"see `isthmus resolve FILE --topic {topic}`; or delete {track.assignment.target.topic} on the target and "
        f"restart with --forget {topic} to copy it anew",
        lost=(track.committed, -1),
    )


def overtaken(track: Track, log_start: int) -> Stop:
    """Retention removed records that were never copied (I6)."""
    return Stop(
        source=track.assignment.source,
        code="GAP",
        message=f"offsets {track.position} to {log_start - 1} were removed on the source before they were copied",
        hint=f"`isthmus resolve FILE --topic {track.assignment.source.topic} --accept-gap` goes on behind it (or "
        "on_gap: skip in the file); the lost range stays on record",
        lost=(track.position, log_start),
    )
