"""What an operator may decide about a partition that stopped, by the code of the stop: one table.

What must stay true: every code has a word for every choice, either what it does or why it makes no sense and what to do
instead. Pure; looking at clusters and carrying out are left to `states` and `carry`.
"""

from __future__ import annotations

import enum
import socket
import time
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from isthmus.errors import ConfigError
from isthmus.machine import user


class Choice(enum.StrEnum):
    """What may be decided."""

    accept_gap = "accept-gap"
    restart = "restart"
    retry = "retry"


class Meaning(NamedTuple):
    """What a choice does; or, where it makes no sense, why, and what to do instead."""

    does: str = ""
    refused: str = ""
    instead: str = ""


_ANEW = "copies the whole topic again from its start; the copy on the target must be empty or deleted before"
_NOT_BACK = "what the source has lost does not come back"
_SAME_AGAIN = "it would stop at the same record again"
_NO_LOSS = "nothing is lost"
# Where a whole topic is concerned, and not some of its partitions.
TOPIC_WIDE = frozenset(
    {"SOURCE_GONE", "SOURCE_RECREATED", "TARGET_RECREATED", "TARGET_RENAMED", "NAME_TAKEN", "HISTORY", "RIGHTS"}
)

_TABLE: dict[str, tuple[Meaning, Meaning, Meaning]] = {  # accept-gap, restart, retry
    "GAP": (
        Meaning("goes on at the first record that the source still has; the lost range is on record"),
        Meaning(_ANEW),
        Meaning(refused=_NOT_BACK, instead="--accept-gap"),
    ),
    "TRUNCATED": (
        Meaning("goes on at the end of what both have; what the target has above that stays there, on record"),
        Meaning(_ANEW),
        Meaning("looks whether a leader is back that has the whole log"),
    ),
    "CORRUPT_BATCH": (
        Meaning("goes on behind the damaged batch; its offsets are on record"),
        Meaning(
            refused="it would stop at the same batch again", instead="--accept-gap, or mend the replica and --retry"
        ),
        Meaning("reads the batch again, after a replica was mended"),
    ),
    "SOURCE_GONE": (
        Meaning("lets the topic go; what the target has stays. A new topic of that name stops again"),
        Meaning(refused="there is no topic to copy", instead="--accept-gap lets it go"),
        Meaning("looks for the topic again"),
    ),
    "SOURCE_RECREATED": (
        Meaning("copies the new topic from its start, behind what the target has of the old one"),
        Meaning(_ANEW),
        Meaning(refused="a topic that was deleted does not come back", instead="--accept-gap or --restart"),
    ),
    "TARGET_RECREATED": (
        Meaning(
            "goes on at the next record, into the target topic as it is now, or a new one; what was copied before "
            "and is gone there is on record"
        ),
        Meaning(_ANEW),
        Meaning(refused="a copy that was deleted does not come back", instead="--restart or --accept-gap"),
    ),
    "TARGET_RENAMED": (
        Meaning("goes on at the next record under the new name; what was copied before stays under the old one"),
        Meaning(_ANEW),
        Meaning(refused="the names in the file are what they are", instead="set the naming back and start again"),
    ),
    "TARGET_REFUSED": (
        Meaning("passes over the records that the target refuses; their offsets are on record"),
        Meaning(refused=_SAME_AGAIN, instead="--accept-gap, or change the target and --retry"),
        Meaning("tries again now, instead of within a minute"),
    ),
    "POISON": (
        Meaning("passes over the record that the transform fails on; its offset is on record"),
        Meaning(refused=_SAME_AGAIN, instead="--accept-gap, or mend the transform and start again"),
        Meaning("tries the transform again, after it was mended in the file"),
    ),
    "SOURCE_REFUSED": (
        Meaning(refused=_NO_LOSS, instead="grant what is missing, then --retry"),
        Meaning(refused=_SAME_AGAIN, instead="grant what is missing, then --retry"),
        Meaning("tries again now, instead of within a minute"),
    ),
    "RIGHTS": (
        Meaning(refused=_NO_LOSS, instead="`isthmus doctor FILE` lists what to grant"),
        Meaning(refused="rights are missing", instead="`isthmus doctor FILE` lists what to grant"),
        Meaning("looks again now, instead of within seconds"),
    ),
    "NAME_TAKEN": (
        Meaning(refused=_NO_LOSS, instead="give the topics names that differ (naming.exact)"),
        Meaning(refused="the records of two topics would mix", instead="give them names that differ (naming.exact)"),
        Meaning(refused="it begins by itself when names differ", instead="naming.exact in the file"),
    ),
    "HISTORY": (
        Meaning(refused=_NO_LOSS, instead="give the topic a `start` in the file and start again"),
        Meaning(refused="which records are copies is not known", instead="give the topic a `start` in the file"),
        Meaning(refused="nothing has changed", instead="give the topic a `start` in the file and start again"),
    ),
    "FOREIGN_WRITE": (
        Meaning("goes on; what others wrote stays between our records, on record"),
        Meaning(_ANEW),
        Meaning(refused="it would go on without a record of what others wrote", instead="--accept-gap"),
    ),
}


def meaning(code: str, choice: Choice) -> Meaning:
    unknown = Meaning(refused=f"nothing is known of {code}", instead="see docs/errors.md")
    return dict(zip(Choice, _TABLE.get(code, (unknown,) * 3), strict=True))[choice]


def codes() -> list[str]:
    return list(_TABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A decision as it was asked for. `partition` -1: all that stopped."""

    topic: str
    partition: int
    choice: Choice
    at: float
    host: str
    user: str

    def as_wish(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def parsed(cls, wish: dict[str, Any]) -> Wanted:
        return cls(
            topic=str(wish["topic"]),
            partition=int(wish["partition"]),
            choice=Choice(wish["choice"]),
            at=float(wish["at"]),
            host=str(wish["host"]),
            user=str(wish["user"]),
        )


def wanted_here(topic: str, partition: int, choice: Choice) -> Wanted:
    """With who asks, from where, and when."""
    return Wanted(
        topic=topic, partition=partition, choice=choice, at=time.time(), host=socket.gethostname(), user=user()
    )


def refused(code: str, wanted: Wanted, where: str) -> ConfigError | None:
    """Why this makes no sense, if it does not."""
    found = meaning(code, wanted.choice)
    if found.refused:
        return ConfigError(
            f"--{wanted.choice} makes no sense for {code}: {found.refused}",
            where=where,
            hint=f"instead: {found.instead}",
            code="CHOICE",
        )
    if wanted.partition >= 0 and (code in TOPIC_WIDE or wanted.choice is Choice.restart):
        what = f"--{wanted.choice}" if wanted.choice is Choice.restart else code
        return ConfigError(
            f"{what} concerns the whole topic {wanted.topic}, not one partition of it",
            where=where,
            hint="leave --partition out",
            code="CHOICE",
        )
    return None
