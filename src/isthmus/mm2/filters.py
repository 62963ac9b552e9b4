"""Which topics and consumer groups a flow carries, and which settings of topics it keeps in step.

Owns MirrorMaker 2's DefaultTopicFilter, DefaultGroupFilter and DefaultConfigPropertyFilter. A topic must match an
include in full, match no exclude, not be internal, and not lead in a circle. Must stay true: internal topics, among
them the flow's own control and progress topics, are never carried, whatever the patterns say. A blank list matches
nothing. Unlike in MirrorMaker 2, each expression stands alone: a flag or group in one does not reach the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from isthmus.mm2 import policy
from isthmus.mm2.javaregex import Expression, compile_java
from isthmus.model import Flow

_LITERAL = re.compile(r"[A-Za-z0-9_\-]+|[A-Za-z0-9_\-]+(\\?\.[A-Za-z0-9_\-]+)+")


def split_list(text: str) -> tuple[str, ...]:
    """A comma list as Kafka reads it: trimmed, blanks dropped."""
    return tuple(item for part in text.split(",") if (item := part.strip()))


@dataclass(frozen=True, slots=True)
class _NameFilter:
    """Full match against any include and no exclude. ConfigError if an expression cannot be used."""

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    _includes: tuple[Expression, ...] = field(init=False, repr=False, compare=False)
    _excludes: tuple[Expression, ...] = field(init=False, repr=False, compare=False)
    _any_text: ClassVar[bool]

    def __post_init__(self) -> None:
        for name, texts in (("_includes", self.include), ("_excludes", self.exclude)):
            object.__setattr__(self, name, tuple(compile_java(text, any_text=self._any_text) for text in texts))

    def matches(self, name: str) -> bool:
        return _any(self._includes, name) and not _any(self._excludes, name)


class TopicFilter(_NameFilter):
    """For names of topics and of settings: letters, digits, dots, dashes and underscores."""

    _any_text = False


class GroupFilter(_NameFilter):
    """For names that may hold any character."""

    _any_text = True


@dataclass(frozen=True, slots=True)
class ConfigFilter:
    """Every setting of a topic is kept in step, except those that match an exclude in full."""

    exclude: tuple[str, ...] = ()
    _excludes: tuple[Expression, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_excludes", tuple(map(compile_java, self.exclude)))

    def matches(self, setting: str) -> bool:
        return not _any(self._excludes, setting)


def _any(patterns: Iterable[Expression], name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)


def named_topics(include: Iterable[str]) -> list[str]:
    """The topics that are asked for by name: expressions that can match one topic only."""
    escaped = (pattern.replace(r"\.", "") for pattern in include)
    pairs = zip(include, escaped, strict=True)
    return [p.replace(r"\.", ".") for p, bare in pairs if _LITERAL.fullmatch(p) and "." not in bare]


def choose(flow: Flow, topics: Iterable[str]) -> list[str]:
    """Those of the source's topics that the flow carries, sorted. Heartbeats go along whatever the patterns say."""
    wanted = TopicFilter(flow.topics.include, flow.topics.exclude)
    beats = flow.mm2_topics.carry_heartbeats
    return sorted(
        topic
        for topic in set(topics)
        if (wanted.matches(topic) or (beats and policy.is_heartbeats(flow.naming, topic))) and may_carry(flow, topic)
    )


def why_not(flow: Flow, topics: Iterable[str]) -> dict[str, str]:
    """The reason why each topic that is not carried is not: internal, not matched, excluded, or cycle."""
    carried, included = set(choose(flow, topics)), TopicFilter(flow.topics.include)
    reasons: dict[str, str] = {}
    for topic in sorted(set(topics) - carried):
        if policy.is_internal(topic, flow.naming.separator):
            reasons[topic] = "internal"
        elif not included.matches(topic):
            reasons[topic] = "not matched"
        else:
            reasons[topic] = "cycle" if policy.is_cycle(flow, topic) else "excluded"
    return reasons


def may_carry(flow: Flow, topic: str) -> bool:
    """Whether the topic may be carried at all, were it wanted: not internal, not in a circle."""
    separators = {flow.naming.separator, policy.internal_separator(flow.naming)}
    internal = any(policy.is_internal(topic, separator) for separator in separators)
    return not internal and not policy.is_cycle(flow, topic)
