"""The outcome of a drill: a row for each move, and everything that speaks against it.

What must stay true. Planned moves lose nothing, and nothing is read again. In a disaster records that never crossed may
be missing, and a group may read again what it had read and not yet told; nothing else is forgiven. Records that never
crossed must be in the side topics, all of them. Neither cluster may hold a record twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isthmus.drill.ledger import Count, GroupVerdict, judge, minus, total
from isthmus.drill.story import DISASTER, Loss, Move, Played


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One move."""

    act: str
    to: str
    stopped: float  # seconds since the drill began
    resumed: float
    rpo_records: int  # acknowledged, and never crossed
    rpo_s: float  # since the oldest of them
    rto_s: float  # from the moment that clients stopped until all of them were at work again
    command_s: float  # the part of it that the command takes from its decision on
    count: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the drill found."""

    rows: tuple[Row, ...]
    groups: tuple[GroupVerdict, ...]
    acknowledged: int
    faults: tuple[str, ...]  # what speaks against it, in words

    @property
    def proven(self) -> bool:
        return not self.faults

    @property
    def total(self) -> Count:
        return sum((group.total for group in self.groups), Count())


def outcome_of(played: Played) -> Outcome:
    clients, loss = played.clients, played.loss
    excused = loss.marks if loss else {}
    stints = len(played.moves) + 1
    groups = tuple(judge(reader.group, reader.trail(), clients.written, excused, stints) for reader in clients.readers)
    rows = tuple(_row(number, move, groups, loss) for number, move in enumerate(played.moves, 1))
    faults = [*_of_rows(rows), *_of_groups(groups), *_of_logs(played), *(_of_loss(loss, played) if loss else ())]
    return Outcome(rows=rows, groups=groups, acknowledged=total(clients.acknowledged()), faults=tuple(faults))


def _row(number: int, move: Move, groups: Sequence[GroupVerdict], loss: Loss | None) -> Row:
    """Lost is what was written before the move and never read; the rest is what was read after it."""
    before = sum((group.stints[number - 1] for group in groups), Count())
    after = sum((group.stints[number] for group in groups), Count())
    hit = loss if move.act == DISASTER else None
    return Row(
        act=move.act,
        to=move.to,
        stopped=move.stopped,
        resumed=move.resumed,
        rpo_records=total(hit.marks) if hit else 0,
        rpo_s=hit.seconds if hit else 0.0,
        rto_s=move.rto_s,
        command_s=move.report.rto_s,
        count=Count(lost=before.lost, reread=after.reread, reordered=after.reordered),
    )


def _of_rows(rows: Sequence[Row]) -> list[str]:
    return [
        f"{row.act}: {row.count.reread:,} records were read again"
        for row in rows
        if row.count.reread and row.act != DISASTER
    ]


def _of_groups(groups: Sequence[GroupVerdict]) -> list[str]:
    found = []
    for group in groups:
        if group.total.lost:
            found.append(f"group {group.group}: {group.total.lost:,} records were never read")
        if group.stints[0].reread:
            found.append(f"group {group.group}: {group.stints[0].reread:,} records were read again before any move")
        if group.total.reordered:
            found.append(f"group {group.group}: {group.total.reordered:,} records came out of order")
        if group.phantoms:
            found.append(f"group {group.group}: {group.phantoms:,} records were read that nobody has committed")
    return found


def _of_logs(played: Played) -> list[str]:
    return [f"{cluster} holds {log.doubled:,} records twice" for cluster, log in played.logs if log.doubled]


def _of_loss(loss: Loss, played: Played) -> list[str]:
    """What the command told and kept, against what the drill found by itself."""
    found = []
    told = sum(left.records for move in played.moves for left in move.report.never_crossed)
    if missing := total(minus(loss.marks, loss.kept)):
        found.append(f"{missing:,} records that never crossed are not in the side topics")
    if told != total(loss.kept):
        found.append(f"failback told of {told:,} records that never crossed, but {total(loss.kept):,} were kept")
    crossed = dict(played.logs)["west"].marks
    if both := total(loss.kept) - total(minus(loss.kept, crossed)):
        found.append(f"{both:,} records are in the side topics although they had crossed")
    if not loss.marks:
        found.append("nothing had failed to cross, so the failover was not put to the test")
    return found
