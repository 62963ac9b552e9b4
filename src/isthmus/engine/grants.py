"""The access rules that a flow needs, as few and as narrow as Kafka can say them: what `isthmus acls` prints.

What must stay true: they come from the table that rights are checked by (`needs`), so what is granted here is what a
run asks for; nothing is listed that another rule gives already (READ gives DESCRIBE). No cluster is needed: topics and
groups are taken from the file's expressions, or from names that are handed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from isthmus.config.credentials import principal
from isthmus.engine.needs import EACH, Need, needs
from isthmus.engine.rights import probe_id
from isthmus.errors import ConfigError
from isthmus.mm2.filters import TopicFilter, may_carry
from isthmus.mm2.policy import HEARTBEATS, remote_topic
from isthmus.mm2.spans import EVERY, LITERAL, Span, prefixed, spans
from isthmus.model import Cluster, Flow

# As Kafka's authorizer has it: whoever may do the one may do the other.
_GIVES = {"READ": "DESCRIBE", "WRITE": "DESCRIBE", "ALTER": "DESCRIBE", "ALTER_CONFIGS": "DESCRIBE_CONFIGS"}
_UNKNOWN = "the user of"  # how `principal` begins where settings do not tell


class Grant(NamedTuple):
    """One rule that allows one operation, and what for."""

    cluster: str  # its alias
    bootstrap: str
    principal: str
    resource: str  # "topic" | "group" | "transactional id" | "cluster"
    span: Span
    operation: str
    why: str

    def covers(self, other: Grant) -> bool:
        same = (self.cluster, self.principal, self.resource) == (other.cluster, other.principal, other.resource)
        gives = other.operation in (self.operation, _GIVES.get(self.operation))
        return same and gives and self.span.covers(other.span)


def grants(
    flows: Sequence[Flow], principals: Mapping[str, str], names: Mapping[str, Sequence[str]] | None = None
) -> list[Grant]:
    """All rules for these flows. `principals`: by alias, instead of what settings tell; `names`: by flow, the topics
    that it carries now, instead of its expressions."""
    found = [
        grant for flow in flows for grant in _of_flow(flow, principals, names[flow.name] if names is not None else None)
    ]
    return sorted(_fewest(found), key=lambda g: (g.cluster, g.principal, g.resource, g.span.name, g.operation))


def _fewest(found: Iterable[Grant]) -> list[Grant]:
    kept: list[Grant] = []
    for grant in found:
        if not any(other.covers(grant) for other in kept):
            kept = [*(other for other in kept if not grant.covers(other)), grant]
    return kept


def _of_flow(flow: Flow, principals: Mapping[str, str], names: Sequence[str] | None) -> list[Grant]:
    topics = _topic_spans(flow) if names is None else [Span(LITERAL, name) for name in names]
    each = {
        ("source", "topic"): topics,
        ("target", "topic"): _copies(flow, topics),
        ("source", "group"): spans(flow.groups.include),
        ("target", "group"): spans(flow.groups.include),
        ("target", "transactional id"): [prefixed(probe_id(flow).removesuffix("probe"))],
    }
    return [
        _grant(flow, need, span, principals)
        for need in needs(flow)
        for span in (each[need.on, need.resource] if need.name == EACH else [Span(LITERAL, need.name)])
    ]


def _grant(flow: Flow, need: Need, span: Span, principals: Mapping[str, str]) -> Grant:
    end = flow.source if need.on == "source" else flow.target
    who = principals.get(end.alias) or _known_principal(end)
    return Grant(end.alias, end.bootstrap[0], who, need.resource, span, need.operation, need.why)


def _known_principal(cluster: Cluster) -> str:
    who = principal(cluster.settings)
    if who.startswith(_UNKNOWN):
        raise ConfigError(
            f"whom the brokers of {cluster.alias} take us for is not in the file: it is {who}",
            hint=f"say it: --principal '{cluster.alias}=User:...' (as brokers name it; for a certificate its subject, "
            "such as User:CN=isthmus)",
            code="PRINCIPAL",
        )
    return who


# -- names ---------------------------------------------------------------------------------------


def _topic_spans(flow: Flow) -> list[Span]:
    wanted = TopicFilter((".*",), flow.topics.exclude)
    found = [span for span in spans(flow.topics.include) if not _is_one(span) or _carried(flow, wanted, span.name)]
    beats = flow.mm2_topics.carry_heartbeats and not any(span.holds(HEARTBEATS) for span in found)
    return [*found, *([Span(LITERAL, HEARTBEATS)] if beats else [])]


def _is_one(span: Span) -> bool:
    return span.pattern == LITERAL and span.name != EVERY


def _carried(flow: Flow, wanted: TopicFilter, name: str) -> bool:
    return wanted.matches(name) and may_carry(flow, name)


def _copies(flow: Flow, topics: Iterable[Span]) -> list[Span]:
    """What these topics are called on the target."""
    found: list[Span] = []
    for span in topics:
        if _is_one(span):
            found.append(span._replace(name=remote_topic(flow, span.name)))
            continue
        found.append(_renamed(flow, span))
        if flow.mm2_topics.carry_heartbeats and span.holds(HEARTBEATS):
            found.append(Span(LITERAL, remote_topic(flow, HEARTBEATS)))
        found += [Span(LITERAL, target) for source, target in flow.naming.exact if span.holds(source)]
    return found


def _renamed(flow: Flow, span: Span) -> Span:
    naming, stem = flow.naming, "" if span.name == EVERY else span.name
    before = {"default": f"{flow.source.alias}{naming.separator}", "rename": naming.prefix}.get(naming.policy, "")
    wider = span.wider or bool(naming.policy == "rename" and naming.suffix)
    return prefixed(before + stem, wider=wider, expression=span.expression)
