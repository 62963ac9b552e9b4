"""What a file asks for that cannot be meant: settings that contradict each other, and what is lawful but doubtful.

Works on flows, so that every format is judged alike. Must stay true: a contradiction names the key that it is about,
so that whoever reads the file can add the line. Our own YAML is refused for it (`flowfile`); in files that other
systems wrote it is a warning, because those systems run them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from isthmus.config.places import Place
from isthmus.mm2.filters import TopicFilter, may_carry, named_topics
from isthmus.mm2.javaregex import compile_java
from isthmus.mm2.policy import remote_topic
from isthmus.model import Flow


class Doubt(NamedTuple):
    """About one key of one flow, by its name in our YAML (`naming.exact`)."""

    flow: str
    key: str
    text: str
    hint: str = ""

    def told(self, places: Mapping[str, Place]) -> str:
        found = next((places[name] for name in self._names() if name in places), None)
        where = f"{found.where}: " if found is not None else ""
        return f"{where}{self.text}" + (f"; {self.hint}" if self.hint else "")

    def _names(self) -> Iterator[str]:
        steps = self.key.split(".")
        for length in range(len(steps), 0, -1):
            yield f"flows.{self.flow}.{'.'.join(steps[:length])}"


# -- contradictions ------------------------------------------------------------------------------


def contradictions(flow: Flow) -> Iterator[Doubt]:
    """What one part of a flow wants and another forbids."""
    yield from _with_a_transform(flow)
    if flow.growth.least > flow.lanes and flow.transform is None:
        text = f"flow {flow.name}: `growth.least` is {flow.growth.least}, but `lanes` allows {flow.lanes}"
        yield Doubt(flow.name, "growth.least", text, "`lanes` is the most that there may be")
    wanted, unwanted = named_topics(flow.topics.include), set(named_topics(flow.topics.exclude))
    for name in wanted:
        if name in unwanted:
            text = f"flow {flow.name}: topic `{name}` is both wanted and excluded"
            yield Doubt(flow.name, "exclude", text, "take it out of one of the lists")
    by_remote: dict[str, list[str]] = {}
    for name in dict.fromkeys([*wanted, *(name for name, _ in flow.naming.exact)]):
        by_remote.setdefault(remote_topic(flow, name), []).append(name)
    for remote, names in by_remote.items():
        if len(names) > 1:
            text = f"flow {flow.name}: topics {', '.join(names)} would all be `{remote}` on the target"
            yield Doubt(flow.name, "naming.exact", text, "their records would mix: give them names that differ")


def _with_a_transform(flow: Flow) -> Iterator[Doubt]:
    """What belongs to copies, and cannot be had where records are changed on their way."""
    mm2 = flow.mm2_topics
    unfit = {
        "growth.least": bool(flow.growth.least),
        "cut_from": bool(flow.cut_from),
        "throttle": bool(flow.throttle),
        "mm2_topics.group_offsets": mm2.group_offsets,
        "mm2_topics.checkpoints": mm2.checkpoints,
        "mm2_topics.offset_syncs": mm2.offset_syncs,
    }
    for key in (key for key, is_wanted in unfit.items() if is_wanted and flow.transform is not None):
        text = f"flow {flow.name}: `{key}` cannot be had together with `transform`"
        yield Doubt(flow.name, key, text, "take one of them away, or copy by a flow without a transform")


# -- doubts --------------------------------------------------------------------------------------


def doubts(flows: Sequence[Flow]) -> Iterator[Doubt]:
    """What is lawful, but hardly meant."""
    yield from _renaming_loops(flows)
    for flow in flows:
        yield from _never_carried(flow)
        yield from _never_reached(flow)
        yield from _ends(flow)
        yield from _groups_of_two_ways(flow)


def _renaming_loops(flows: Sequence[Flow]) -> Iterator[Doubt]:
    """A renamed topic is known by its new name only: flows that rename differently do not know each other's copies.

    Their records are cut, but empty topics with ever longer names would be created.
    """
    renaming = {(f.source.alias, f.target.alias): f.naming for f in flows if f.naming.policy == "rename"}
    for (source, target), naming in renaming.items():
        back = renaming.get((target, source))
        if back is None or source > target:
            continue
        affixes = (naming.prefix, naming.suffix), (back.prefix, back.suffix)
        if affixes[0] != affixes[1] and all(any(affix) for affix in affixes):
            text = f"flows {source}->{target} and {target}->{source} rename differently: of a topic that both carry,"
            hint = "give them topics that differ, or the same prefix and suffix"
            yield Doubt(
                f"{source}->{target}",
                "naming",
                f"{text} copies of copies would be created without end, and stay empty",
                hint,
            )


def _never_carried(flow: Flow) -> Iterator[Doubt]:
    """Topics that are asked for by name, and that something else rules out."""
    literal, excluded = set(named_topics(flow.topics.exclude)), TopicFilter(flow.topics.exclude)
    for name in named_topics(flow.topics.include):
        if not may_carry(flow, name):
            text = f"flow {flow.name}: topic `{name}` is internal, or came from the target: it is never carried"
            yield Doubt(flow.name, "topics", text)
        elif name not in literal and excluded.matches(name):
            pattern = next(each for each in flow.topics.exclude if compile_java(each).fullmatch(name))
            yield Doubt(
                flow.name, "exclude", f"flow {flow.name}: topic `{name}` is wanted, but `{pattern}` excludes it"
            )


def _never_reached(flow: Flow) -> Iterator[Doubt]:
    patterns = [start.topics for start in flow.starts]
    if ".*" in patterns[:-1]:
        text = f"flow {flow.name}: what stands in `start` after the rule for all topics never counts"
        yield Doubt(flow.name, "start", text, "put that rule last")


def _groups_of_two_ways(flow: Flow) -> Iterator[Doubt]:
    """Where each side writes, the two logs have different orders: no offset of the one means the same in the other."""
    if flow.mm2_topics.group_offsets and any(cut.origin == flow.target.alias for cut in flow.all_cuts):
        text = (
            f"flow {flow.name}: topics are written on both sides, so a group that moves over goes on behind the last "
            f"record of {flow.source.alias} that it has read, and may miss records of {flow.target.alias} before that"
        )
        hint = "leave `group_offsets` off for groups that read such topics"
        yield Doubt(flow.name, "mm2_topics.group_offsets", text, hint)


def _ends(flow: Flow) -> Iterator[Doubt]:
    if flow.naming.policy == "default" and flow.naming.separator in flow.source.alias:
        text = (
            f"flow {flow.name}: the alias `{flow.source.alias}` holds the separator `{flow.naming.separator}`, so a "
            "circle through it would not be noticed"
        )
        yield Doubt(flow.name, "naming.separator", text)
    if set(flow.source.bootstrap) & set(flow.target.bootstrap):
        text = (
            f"flow {flow.name}: source and target name the same broker; if they are one cluster, copies that match "
            "`topics` would be copied again"
        )
        yield Doubt(flow.name, "from", text)
