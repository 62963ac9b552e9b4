"""Topic names across clusters: MirrorMaker 2's replication policies, its internal topics, its cycle rule.

Owns how a source topic is called on the target, and what a name says about where a topic came from.
Must stay true: answers equal those of DefaultReplicationPolicy and IdentityReplicationPolicy, oddities
included, because a team that switches over keeps its topics. "rename" is ours: exact names first, then prefix
and suffix; two topics that would land on one name are not noticed here. Which topics a flow *wants* is not decided
here but in `filters`.
"""

from __future__ import annotations

from isthmus.model import Flow, Naming

HEARTBEATS = "heartbeats"


def remote_topic(flow: Flow, topic: str) -> str:
    """The name on the target of a source topic."""
    naming = flow.naming
    if naming.policy == "rename" and topic in (exact := dict(naming.exact)):
        return exact[topic]
    if naming.policy == "default" or topic.endswith(HEARTBEATS):
        # Prefixed under every policy: bare heartbeats could not tell one cluster from another.
        return f"{flow.source.alias}{naming.separator}{topic}"
    return f"{naming.prefix}{topic}{naming.suffix}" if naming.policy == "rename" else topic


def topic_source(naming: Naming, topic: str, source_alias: str | None = None) -> str | None:
    """The alias of the cluster that a topic came from, as far as its name tells; None if local.

    Under the identity policy names tell nothing: every topic is said to be from `source_alias`. Under rename,
    those that carry the prefix and suffix are.
    """
    if naming.policy == "rename" and not topic.endswith(HEARTBEATS):
        return None if upstream_topic(naming, topic) is None else source_alias
    if naming.policy == "identity" and not topic.endswith(HEARTBEATS):
        return source_alias
    parts = topic.split(naming.separator)
    while parts and not parts[-1]:  # Java's String.split drops trailing empty parts: `a.` is local
        parts.pop()
    return parts[0] if len(parts) > 1 else None


def upstream_topic(naming: Naming, topic: str) -> str | None:
    """The name one hop back, on the cluster that `topic_source` names; None if local."""
    if naming.policy == "rename" and not topic.endswith(HEARTBEATS):
        return _renamed_from(naming, topic)
    if naming.policy == "identity" and not topic.endswith(HEARTBEATS):
        return topic
    source = topic_source(naming, topic)
    return None if source is None else topic[len(source) + len(naming.separator) :]


def _renamed_from(naming: Naming, topic: str) -> str | None:
    if found := next((source for source, target in naming.exact if target == topic), None):
        return found
    stem = topic.removeprefix(naming.prefix).removesuffix(naming.suffix)
    whole = len(stem) + len(naming.prefix) + len(naming.suffix) == len(topic)
    return stem if stem and stem != topic and whole else None


def original_topic(naming: Naming, topic: str) -> str:
    """The name that the topic had where it was first written: all prefixes stripped."""
    seen = {topic}  # two exact names may point at each other
    while (upstream := upstream_topic(naming, topic)) is not None and upstream not in seen:
        topic = upstream
        seen.add(topic)
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
    if topic.startswith("isthmus.") and topic.endswith(".dead-letters"):
        return True
    return topic.startswith(("__", ".")) or topic.endswith((f"{separator}internal", "-internal", ".internal"))


def is_cycle(flow: Flow, topic: str) -> bool:
    """Whether replicating this topic would send records back to where they have been.

    A renamed topic does not say which clusters it passed; one that carries the new name already is taken as a copy,
    unless it is asked for by its exact name.
    """
    naming = flow.naming
    if naming.policy == "rename" and not topic.endswith(HEARTBEATS):
        return topic not in dict(naming.exact) and _renamed_from(naming, topic) is not None
    return flow.target.alias in hops(naming, topic)


def is_heartbeats(naming: Naming, topic: str) -> bool:
    """MirrorMaker 2's heartbeats topic, or a replica of one at any number of hops."""
    return original_topic(naming, topic) == HEARTBEATS


# --- MirrorMaker 2's own topics ---------------------------------------------------------------


def offset_syncs_topic(flow: Flow) -> str:
    """Named after the other cluster: on the source after the target, on the target after the source."""
    other = flow.target if flow.mm2_topics.offset_syncs_on == "source" else flow.source
    separator = internal_separator(flow.naming)
    return f"mm2-offset-syncs{separator}{other.alias}{separator}internal"


def checkpoints_topic(flow: Flow) -> str:
    """On the target, named after the source."""
    separator = internal_separator(flow.naming)
    return f"{flow.source.alias}{separator}checkpoints{separator}internal"


def heartbeats_topic(flow: Flow) -> str:
    """What the source's heartbeats are called on the target, under every policy."""
    return f"{flow.source.alias}{flow.naming.separator}{HEARTBEATS}"


def internal_separator(naming: Naming) -> str:
    return naming.internal_separator or naming.separator
