"""Flows of one file that lead back to where records came from, or to one place on two ways.

Owns what each flow must cut (`Flow.cuts`) and which topologies are refused. Names tell where a topic came from under
the default policy alone; elsewhere copies are known by their producer ids, and these tell the last cluster before, not
the first. So a flow from S to T leaves out what came from T itself, and, where names are kept, what came from any F
that has a flow to T of its own. Pairs, chains, trees and full meshes are right by that; a ring of three or more, or
two ways of equal right to one cluster, are not.

Must stay true: nothing is refused that no topic can run into. Patterns are tried with names that are made from them;
a pattern of which no name can be made refuses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from isthmus.config.places import Problem
from isthmus.mm2.filters import TopicFilter, may_carry
from isthmus.mm2.javaregex import compile_java
from isthmus.mm2.policy import remote_topic
from isthmus.model import Cut, Flow

_Way = tuple[str, ...]  # aliases that a record passes, from where it was written
_STAND_INS = (
    (r"\\[dD][+*]?|\[0-9\][+*]?", "0"),
    (r"\\w[+*]?|\.[+*]\??", "x"),
    (r"\\([.-])", r"\1"),
    (r"\((?:\?:)?([^|()?]*)(?:\|[^()]*)?\)", r"\1"),  # the first of several in brackets
)


def with_cuts(flows: tuple[Flow, ...]) -> tuple[Flow, ...]:
    """The flows, each with what it must leave out because of the others."""
    return tuple(replace(flow, cuts=tuple(_cuts(flow, flows))) for flow in flows)


def _cuts(flow: Flow, flows: tuple[Flow, ...]) -> Iterator[Cut]:
    by_ends = {(each.source.alias, each.target.alias): each for each in flows}
    source, target = flow.source.alias, flow.target.alias
    back = by_ends.get((target, source))
    if back is not None and {flow.naming.policy, back.naming.policy} != {"default"}:
        yield Cut(origin=target, brings=back.topics) if _keep_names(flow, back) else Cut(origin=target)
    for (origin, end), direct in by_ends.items():
        first = by_ends.get((origin, source))
        if end == target and origin != source and first is not None and _keep_names(first, flow, direct):
            yield Cut(origin=origin, topics=direct.topics, brings=first.topics)


def _keep_names(*flows: Flow) -> bool:
    return all(flow.naming.policy == "identity" for flow in flows)


# --- what is refused --------------------------------------------------------------------------


def circle_problems(flows: tuple[Flow, ...]) -> Iterator[Problem]:
    """The first way found by which a record would come home, or arrive twice."""
    if all(flow.naming.policy == "default" for flow in flows):
        return
    clusters = dict.fromkeys(end.alias for flow in flows for end in (flow.source, flow.target))
    for topic in sorted({name for flow in flows for name in _names(flow)}):
        for origin in clusters:
            if ways := _two_ways(flows, origin, topic):
                yield _problem(topic, *ways)
                return


def _names(flow: Flow) -> Iterator[str]:
    """Topics that the flow carries, made from its patterns."""
    for pattern in flow.topics.include:
        text = pattern
        for found, stand_in in _STAND_INS:
            text = re.sub(found, stand_in, text)
        known = compile_java(pattern)
        yield from (name for name in {text, *re.findall(r"[A-Za-z0-9._-]+", text)} if known.fullmatch(name))


def _two_ways(flows: tuple[Flow, ...], origin: str, topic: str) -> tuple[_Way, _Way] | None:
    """Two ways on which a record of this origin arrives in one topic; the first may be no way at all."""
    arrived: dict[tuple[str, str], _Way] = {(origin, topic): (origin,)}
    waiting: list[tuple[str, _Way]] = [(topic, (origin,))]
    for name, way in waiting:
        for flow in flows:
            if flow.source.alias != way[-1] or not _carries(flow, name, way):
                continue
            there, on = (flow.target.alias, remote_topic(flow, name)), (*way, flow.target.alias)
            if there in arrived or len(on) > 2 * len(flows) + 1:
                return arrived.get(there, (origin,)), on
            arrived[there] = on
            waiting.append((there[1], on))
    return None


def _carries(flow: Flow, topic: str, way: _Way) -> bool:
    if not TopicFilter(flow.topics.include, flow.topics.exclude).matches(topic) or not may_carry(flow, topic):
        return False
    last = way[-2] if len(way) > 1 else None
    cuts = (cut for cut in flow.all_cuts if cut.origin == last)
    return not any(TopicFilter(cut.topics.include, cut.topics.exclude).matches(topic) for cut in cuts)


def _problem(topic: str, first: _Way, second: _Way) -> Problem:
    origin = second[0]
    if len(first) == 1:
        text = f"records of {origin} in topics such as `{topic}` would go round: {'->'.join(second)}"
        hint = "open the ring at one place, or let each two of its clusters have flows in both directions"
    else:
        ways = f"{'->'.join(first)} and {'->'.join(second)}"
        text = f"records of {origin} in topics such as `{topic}` would arrive twice: {ways}"
        hint = f"leave one way, add a flow {origin}->{second[-1]}, or give them topics that differ"
    return Problem(0, text, hint)
