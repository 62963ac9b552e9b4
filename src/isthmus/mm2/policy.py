"""Topic names across clusters: MirrorMaker 2's replication policies, its internal topics, its cycle rule.

Owns how a source topic is called on the target, and what a name says about where a topic came from.
Must stay true: answers equal those of DefaultReplicationPolicy and IdentityReplicationPolicy, oddities
included, because a team that switches over keeps its topics. Which topics a flow *wants* is not decided
here but in `filters`.
"""

from __future__ import annotations

from isthmus.model import Flow, Naming

HEARTBEATS = "heartbeats"


def remote_topic(flow: Flow, topic: str) -> str:
    """The name on the target of a source topic."""
    if flow.naming.policy == "identity" and not topic.endswith(HEARTBEATS):
        return topic
    # Identity prefixes heartbeats too: unprefixed, they could not tell one cluster from another.
    return f"{flow.source.alias}{flow.naming.separator}{topic}"


def topic_source(naming: Naming, topic: str, source_alias: str | None = None) -> str | None:
    """The alias of the cluster that a topic came from, as far as its name tells; None if local.

    Under the identity policy names tell nothing: every topic is said to be from `source_alias`.
    """
    if naming.policy == "identity" and not topic.endswith(HEARTBEATS):
        return source_alias
    parts = topic.split(naming.separator)
    while parts and not parts[-1]:  # Java's String.split drops trailing empty parts: `a.` is local
        parts.pop()
    return parts[0] if len(parts) > 1 else None


def upstream_topic(naming: Naming, topic: str) -> str | None:
    """The name one hop back, on the cluster that `topic_source` names; None if local."""
    if naming.policy == "identity" and not topic.endswith(HEARTBEATS):
        return topic
    source = topic_source(naming, topic)
    return None if source is None else topic[len(source) + len(naming.separator) :]


def original_topic(naming: Naming, topic: str) -> str:
    """The name that the topic had where it was first written: all prefixes stripped."""
    upstream = upstream_topic(naming, topic)
    while upstream is not None and upstream != topic:
        topic, upstream = upstream, upstream_topic(naming, upstream)
    return topic


def hops(naming: Naming, topic: str) -> tuple[str, ...]:
    """Aliases that a topic has passed through, the latest first, read from its prefixes."""
    passed: list[str] = []
    upstream: str | None = topic
    while upstream is not None and (source := topic_source(naming, upstream)) is not None:
        passed.append(source)
        topic, upstream = upstream, upstream_topic(naming, upstream)
        if upstream == topic:  # identity: the name never gets shorter
            break
    return tuple(passed)


def is_internal(topic: str, separator: str = ".") -> bool:
    """Topics of Kafka, Connect, MirrorMaker 2 and Isthmus itself, which are never replicated."""
    return topic.startswith(("__", ".")) or topic.endswith((f"{separator}internal", "-internal", ".internal"))


def is_cycle(flow: Flow, topic: str) -> bool:
    """Whether replicating this topic would send records back to where they have been."""
    return flow.target.alias in hops(flow.naming, topic)


def is_heartbeats(naming: Naming, topic: str) -> bool:
    """MirrorMaker 2's heartbeats topic, or a replica of one at any number of hops."""
    return original_topic(naming, topic) == HEARTBEATS
