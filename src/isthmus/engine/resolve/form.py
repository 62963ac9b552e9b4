"""The documented JSON form of stops, gaps and decisions (docs/json-output.md), for every face."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.engine.control import ControlView
    from isthmus.engine.orders import Stop
    from isthmus.engine.resolve.record import Decision, Gap


def gap_json(gap: Gap) -> dict[str, Any]:
    """As in `verify`, too."""
    return {
        "topic": gap.topic,
        "partition": gap.partition,
        "code": gap.code,
        "first": gap.first,
        "past": gap.past,
        "target": [list(each) for each in gap.foreign],
        "accepted": gap.accepted,
        "at": gap.at,
    }


def decision_json(decision: Decision) -> dict[str, Any]:
    return {
        "topic": decision.topic,
        "partition": decision.partition,
        "choice": decision.choice,
        "code": decision.code,
        "first": decision.first,
        "past": decision.past,
        "target": [list(each) for each in decision.foreign],
        "at": decision.at,
        "host": decision.host,
        "user": decision.user,
    }


def _stop_json(stop: Stop) -> dict[str, Any]:
    return {
        "topic": stop.source.topic,
        "partition": stop.source.partition,
        "code": stop.code,
        "error": stop.message,
        "hint": stop.hint,
        "lost": None if stop.lost is None else list(stop.lost),
        "target": [list(each) for each in stop.foreign],
    }


def record_json(flow: str, view: ControlView) -> dict[str, Any]:
    from isthmus.engine.resolve import record

    return {
        "flow": flow,
        "stops": [_stop_json(stop) for _, stop in sorted(record.stops(view).items())],
        "gaps": [gap_json(gap) for gap in record.gaps(view)],
        "decisions": [decision_json(each) for each in record.decisions(view)],
    }
