"""Gives every cluster of a file its `security`, made of its settings.

Must stay true: ONE ConfigError tells all that is wrong, with lines; doubts come back as warnings, dangers among them.
What single settings mean is in `security`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from isthmus.config.places import DEFAULT, Place, Problem, refusal
from isthmus.config.security import Reading, read_security
from isthmus.model import Cluster, Flow


def secure(
    flows: tuple[Flow, ...], origin: Path, places: Mapping[str, Place]
) -> tuple[tuple[Flow, ...], tuple[str, ...]]:
    """The flows with the security of their clusters, and what is to be said about it."""
    clusters = {end.alias: end for flow in flows for end in (flow.source, flow.target)}
    read = {alias: read_security(cluster.settings) for alias, cluster in clusters.items()}
    problems = [problem for alias, reading in read.items() for problem in _problems(alias, reading, places)]
    if problems:
        raise refusal(origin, problems)
    safe = {alias: secured(cluster, read[alias]) for alias, cluster in clusters.items()}
    warnings = dict.fromkeys(
        f"cluster {alias}: {told.text}" for alias, reading in read.items() for told in reading.doubts
    )
    ends = ((safe[flow.source.alias], safe[flow.target.alias]) for flow in flows)
    found = (dataclasses.replace(f, source=a, target=b) for f, (a, b) in zip(flows, ends, strict=True))
    return tuple(found), tuple(warnings)


def secured(cluster: Cluster, reading: Reading) -> Cluster:
    return dataclasses.replace(cluster, security=reading.security)


def _problems(alias: str, reading: Reading, places: Mapping[str, Place]) -> list[Problem]:
    found = []
    for told in reading.wrong:
        where = places.get(f"clusters.{alias}.properties.{told.name}", DEFAULT).where
        line = where.rpartition(":")[2]
        found.append(Problem(int(line) if line.isdigit() else 0, f"cluster {alias}: {told.text}", told.hint))
    return found
