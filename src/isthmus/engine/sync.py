"""What must change on the target so that topics keep their settings and access rules: MirrorMaker 2's rules, pure.

Settings: what is read-only, secret, excluded by name, from the source broker's own file, or unknown to the target is
left alone. Of the rest, what the source topic sets is set; what the source leaves at its default is removed from the
target topic (`defaults_from: target`), or set where the target would differ (`source`).
Access rules: of literal rules on topics that are carried, all but ALLOW WRITE are added under the remote name; ALLOW
ALL becomes ALLOW READ. Nothing is ever taken away.

What must stay true: compared with a target that follows already, nothing comes out, so an unchanged round alters
nothing. Asking and telling the brokers is left to `upkeep` and `plan`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from isthmus.mm2.filters import TopicFilter
from isthmus.model import Sync
from isthmus.wire.access import ALL, ALLOW, LITERAL, READ, WRITE, TopicAcl
from isthmus.wire.settings import DEFAULT, SET_ON_TOPIC, STATIC_BROKER, Setting, Settings

# Gone since 4.0, which refuses them; and in an old format no target could take transactions.
_NEVER = frozenset({"message.format.version", "message.downconversion.enable"})


class Change(NamedTuple):
    """One setting of a target topic: `old` is what it sets now (None: nothing), `new` None removes that."""

    topic: str
    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        if self.new is None:
            return f"{self.topic}: {self.name} removed (was {self.old})"
        return f"{self.topic}: {self.name}={self.new}" + ("" if self.old is None else f" (was {self.old})")


class SettingRules:
    """Which settings follow the source, and whose default counts."""

    def __init__(self, sync: Sync) -> None:
        self._excluded = TopicFilter(sync.config_exclude)
        self._source_defaults = sync.defaults_from == "source"

    def changes(self, topic: str, source: Settings, target: Settings) -> list[Change]:
        """What to change on the target's `topic`, of settings that the target knows."""
        wanted = ((name, self._change(source[name], target[name])) for name in target if name in source)
        return [
            Change(topic, name, _own(target[name]), change[0])
            for name, change in wanted
            if change is not None and self._follows(name, source[name]) and not target[name].read_only
        ]

    def _change(self, source: Setting, target: Setting) -> tuple[str | None] | None:
        """The new value in a tuple of one, or None: stays as it is."""
        if source.origin != DEFAULT:
            return None if _own(target) == source.value else (source.value,)
        if self._source_defaults:
            return None if target.value == source.value else (source.value,)
        return None if _own(target) is None else (None,)

    def at_creation(self, source: Settings, yardstick: Settings) -> dict[str, str]:
        """Settings of a topic that is created. `yardstick`: any topic of the target, for names and defaults that its
        brokers know; empty: not told."""
        chosen = {
            name: setting.value
            for name, setting in source.items()
            if setting.value is not None
            and (name in yardstick or not yardstick)
            and self._follows(name, setting)
            and (setting.origin != DEFAULT or self._differs(setting, yardstick.get(name)))
        }
        return dict(sorted(chosen.items()))

    def _differs(self, source: Setting, there: Setting | None) -> bool:
        # What the yardstick sets itself says nothing of the brokers' default: the round after the creation will tell.
        told = there is not None and there.origin != SET_ON_TOPIC
        return self._source_defaults and told and there is not None and there.value != source.value

    def _follows(self, name: str, source: Setting) -> bool:
        if source.read_only or source.sensitive or source.origin == STATIC_BROKER or source.value is None:
            return False
        return name not in _NEVER and not self._excluded.matches(name)


def _own(setting: Setting) -> str | None:
    return setting.value if setting.origin == SET_ON_TOPIC else None


def remote_acl(acl: TopicAcl, remote: str) -> TopicAcl | None:
    """The rule as it stands on the target; None for one that is not taken along."""
    if acl.pattern != LITERAL or (acl.permission, acl.operation) == (ALLOW, WRITE):
        return None  # only the flow itself writes into a copy
    if (acl.permission, acl.operation) == (ALLOW, ALL):
        return acl._replace(topic=remote, operation=READ)
    return acl._replace(topic=remote)


def missing_acls(source: Iterable[TopicAcl], target: frozenset[TopicAcl], remotes: Mapping[str, str]) -> list[TopicAcl]:
    """Rules to add on the target; `remotes` holds the target's name of each topic that is carried."""
    wanted = {remote_acl(acl, remotes[acl.topic]) for acl in source if acl.topic in remotes}
    return sorted(acl for acl in wanted if acl is not None and acl not in target)
