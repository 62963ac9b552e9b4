"""The flow back: a mirror image of a flow, and how it is made to begin where the freeze was.

Every copy goes back to the topic that it came from, whatever the flow's naming. What must stay true: the mirror begins
at the end of each copy as of the freeze, so it brings what clients wrote since and nothing else; it never runs beside
the original flow, and that one goes on behind everything that came back: positions keep them apart, no register of
producer ids. Where offsets of one log are in the other is known for both directions: runs can be read both ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from isthmus.engine.control import write as write_control
from isthmus.engine.hold import Hold
from isthmus.engine.internal import create_internal_topics
from isthmus.engine.offsets.index import Index
from isthmus.engine.offsets.runs import Runs, Span
from isthmus.model import Cluster, Flow, Mm2Topics, Naming, Start, TopicPartition, Topics
from isthmus.wire.cluster import Client

SIDE = "never-crossed"
_NOTHING_BESIDE = Mm2Topics(heartbeats=False, carry_heartbeats=False, offset_syncs=False, checkpoints=False)
_SEED_HINT = "its control topic could not be made; see `isthmus doctor`"


def mirror_of(flow: Flow, remotes: Mapping[str, str]) -> Flow:
    """The flow back. Where names are kept, topics that are new on the other side come along, too."""
    kept = replace(
        flow.mm2_topics,
        heartbeats=False,
        carry_heartbeats=False,
        checkpoints=flow.keeps_index,
        group_offsets=False,
    )
    back = replace(
        flow,
        source=flow.target,
        target=flow.source,
        mm2_topics=kept,
        starts=(),
        cuts=(),
        cut_from=(),
        registers=False,
        on_foreign_write="stop",  # old clients that came back with their cluster
    )
    if flow.naming.policy == "identity":
        return replace(back, topics=replace(flow.topics, exclude=(*flow.topics.exclude, rf".*\.{SIDE}")))
    exact = tuple((remote, name) for name, remote in sorted(remotes.items()))
    names = tuple(_literal(remote) for remote, _ in exact)
    return replace(back, topics=Topics(include=names, exclude=()), naming=_renaming(flow, exact))


def side_of(flow: Flow, remotes: Mapping[str, str]) -> Flow:
    """A flow of its own that keeps what never crossed beside the copies; it has its own progress."""
    source: Cluster = replace(flow.source, alias=f"{flow.source.alias}-{SIDE}")
    exact = tuple((name, f"{remote}.{SIDE}") for name, remote in sorted(remotes.items()))
    return replace(
        flow,
        source=source,
        topics=Topics(include=tuple(_literal(name) for name, _ in exact), exclude=()),
        naming=_renaming(flow, exact),
        mm2_topics=_NOTHING_BESIDE,
        starts=(Start(at="latest"),),  # positions are stored for what is wanted; nothing else is
        cuts=(),
        cut_from=(),
        registers=False,
    )


def _renaming(flow: Flow, exact: tuple[tuple[str, str], ...]) -> Naming:
    return Naming(
        policy="rename",
        separator=flow.naming.separator,
        internal_separator=flow.naming.internal_separator,
        exact=exact,
    )


def _literal(name: str) -> str:
    return name.replace(".", r"\.")


async def seed(flow: Flow, source: Client, target: Client, positions: Mapping[TopicPartition, int]) -> None:
    """Let a flow that may never have run begin at these source offsets, whatever it did before."""
    await create_internal_topics(source, target, flow, lambda _: None)
    await target.refresh(None)
    hold = Hold(flow, target)
    await hold.read()
    async with hold.held(_SEED_HINT):
        await hold.ledger.advance()
        await hold.store(positions)
        # Copies that are not there yet are put on record by the run that creates them.
        if found := _on_record(flow, source, target, {tp.topic for tp in positions}):
            await write_control(hold.journal, found)


def _on_record(flow: Flow, source: Client, target: Client, names: Iterable[str]) -> dict[str, dict[str, str]]:
    exact = dict(flow.naming.exact)
    pairs = {name: exact.get(name, name) for name in names}
    return {
        f"topic/{name}": {
            "source_id": str(source.topic_id(name)),
            "target": there,
            "target_id": str(target.topic_id(there)),
        }
        for name, there in pairs.items()
        if there in target.topics
    }


class Border(NamedTuple):
    """Where the record of one direction ends and that of the other begins, for one partition X -> Y."""

    tp: TopicPartition  # of X, which the runs are known for
    image: TopicPartition  # of Y, which they are wanted for
    since: int  # an offset of X: what landed from here on follows `floor` in Y
    floor: int  # an offset of Y; -1: nothing is known about what lies before the first run
    known_to: int  # X is dealt with up to here ...
    end: int  # ... and Y up to here


async def reflect(index: Index, onto: Index, borders: Iterable[Border]) -> None:
    """Put runs of one direction on record for the other: where a record of Y came from, or landed, in X."""
    await index.catch_up()
    await onto.catch_up()
    spans: list[Span] = []
    for border in borders:
        spans += reflected(await index.stretches(border.tp), border, max(onto.end(border.image), 0))
    await onto.write(spans)


def reflected(stretches: Iterable[Span], border: Border, known: int) -> list[Span]:
    """Spans of Y. A stretch without a hole has none in its image, either; nothing is said about what lies between."""
    spans: list[Span] = []
    for each in stretches:
        runs = _from(_inverse(each.runs), known)
        reaches = each.end >= border.known_to
        begins = border.floor >= 0 and each.start <= border.since <= each.end
        if not len(runs) and not (begins and reaches):
            continue
        start = max(known, border.floor) if begins else int(runs[0, 0])
        end = border.end if reaches else int(runs[-1, 0] + runs[-1, 2])
        if end > start:
            spans.append(Span(border.image, start, end, _from(runs, start)))
    return spans


def _inverse(runs: Runs) -> Runs:
    return np.ascontiguousarray(runs[:, [1, 0, 2]])


def _from(runs: Runs, start: int) -> Runs:
    """Without what lies before the start."""
    cut = np.clip(start - runs[:, 0], 0, runs[:, 2])
    moved = np.column_stack((runs[:, 0] + cut, runs[:, 1] + cut, runs[:, 2] - cut))
    return np.ascontiguousarray(moved[moved[:, 2] > 0])
