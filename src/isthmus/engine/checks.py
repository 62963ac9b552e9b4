"""What a doctor's check found: one line of its report, and the outcome of all of them.

What must stay true: a check that failed carries the exit status that a run would have ended with for the same reason.
Pure values; `doctor` fills them in, the command line shows them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from isthmus.engine.needs import FLOW, NOTHING
from isthmus.engine.rights import Right
from isthmus.errors import IsthmusError, PartitionStopped, SourceError, TargetError

_EXAMPLES = 5


class Outcome(StrEnum):
    ok = "ok"
    warn = "warn"
    fail = "fail"


class Check(NamedTuple):
    """`about`: the flow, cluster or thing that was looked at."""

    check: str
    about: str
    outcome: Outcome
    text: str
    hint: str = ""
    exit_code: int = 0  # of a failure
    right: Right | None = None


def ok(check: str, about: str, text: str) -> Check:
    return Check(check, about, Outcome.ok, text)


def warn(check: str, about: str, text: str, hint: str = "") -> Check:
    return Check(check, about, Outcome.warn, text, hint)


def fail(check: str, about: str, text: str, hint: str, kind: type[IsthmusError]) -> Check:
    return Check(check, about, Outcome.fail, text, hint, kind.exit_code)


def failed(check: str, about: str, error: IsthmusError) -> Check:
    return Check(check, about, Outcome.fail, str(error), error.hint, error.exit_code)


def of_right(right: Right) -> Check:
    """A missing right: it ends a run, or keeps back topics, or is a pity."""
    text = f"missing: {right}, to {right.why}"
    if right.keeps_back == NOTHING:
        return Check("rights", right.cluster, Outcome.warn, text, "grant it, or do without: records flow", 0, right)
    if right.keeps_back == FLOW:
        kind = SourceError if right.on == "source" else TargetError
        return Check("rights", right.cluster, Outcome.fail, text, "grant it: nothing can flow", kind.exit_code, right)
    hint = f"grant it: {right.keeps_back} of {right.topic} wait" if right.keeps_back != "topic" else ""
    hint = hint or f"grant it: topic {right.topic} waits, the others flow"
    return Check("rights", right.cluster, Outcome.fail, text, hint, PartitionStopped.exit_code, right)


def overall(checks: Iterable[Check]) -> Outcome:
    found = {check.outcome for check in checks}
    return Outcome.fail if Outcome.fail in found else Outcome.warn if Outcome.warn in found else Outcome.ok


def exit_status(checks: Iterable[Check]) -> int:
    """0, or what a run would have ended with: of several, what it meets first."""
    return min((check.exit_code for check in checks if check.outcome is Outcome.fail), default=0)


def some(names: Iterable[object]) -> str:
    """The first few of many."""
    listed = [str(name) for name in names]
    more = len(listed) - _EXAMPLES
    return ", ".join(listed[:_EXAMPLES]) + (f" and {more} more" if more > 0 else "")
