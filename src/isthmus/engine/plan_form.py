"""The documented JSON form of a plan (docs/json-output.md), for the command line and the web page alike.

Pure, and quick to import: whoever only asks for help needs nothing of what a plan is made of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.engine.abilities import Finding
    from isthmus.engine.plan import Plan
    from isthmus.engine.rights import Right
    from isthmus.wire.admin import NewTopic


def plan_json(plan: Plan) -> dict[str, Any]:
    """The documented JSON form of a plan (docs/json-output.md)."""
    return {
        "flow": plan.flow,
        "summary": plan.summary(),
        "create": [_topic_json(topic) for topic in plan.create],
        "internal": [{"cluster": getattr(plan, on)} | _topic_json(topic) for on, topic, _ in plan.internal],
        "grow": [{"topic": g.target, "from": g.before, "to": g.partitions} for g in plan.grow],
        "alter": [{"topic": c.topic, "setting": c.name, "from": c.old, "to": c.new} for c in plan.alter],
        "access": [str(acl) for acl in plan.acls],
        "skipped": {reason: list(topics) for reason, topics in plan.skipped.items()},
        "begin": [
            {
                "topic": start.topic,
                "partitions": start.partitions,
                "positions": {str(number): offset for number, offset in start.positions.items()},
                "otherwise": start.at,
            }
            for start in plan.starts
        ],
        "stopped": [{"topic": s.source.topic, "code": s.code, "error": f"{s.message}. {s.hint}"} for s in plan.stopped],
        "rights": [right_json(right) for right in plan.rights],
        "problems": list(plan.problems),
        "lacks": [_lack_json(each) for each in plan.lacks],
    }


def _lack_json(finding: Finding) -> dict[str, str]:
    return {
        "cluster": finding.cluster,
        "severity": finding.severity.value,
        "code": finding.code,
        "text": finding.text,
        "hint": finding.hint,
    }


def right_json(right: Right) -> dict[str, str]:
    """The documented JSON form of a missing right (docs/json-output.md)."""
    return {
        "cluster": right.cluster,
        "principal": right.principal,
        "operation": right.operation,
        "resource": right.resource,
        "name": right.name,
        "needed_to": right.why,
        "keeps_back": right.keeps_back,
        "topic": right.topic,
    }


def _topic_json(topic: NewTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "settings": dict(topic.configs),
    }
