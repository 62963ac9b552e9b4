"""What the page may change, where that is allowed: pause, resume, throttle, and a change of sides with a plan first.

What must stay true: a change of sides begins only with the plan that was shown for it, unchanged and not old, and the
flow's name typed out; one at a time; its steps and its report stay to be seen, whoever closes the page. Every deed is
told to `say`, with the address that it came from. It is `isthmus.dr` and `engine.wishes` that do it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from isthmus.config.values import amount
from isthmus.dr.form import plan_json, report_json
from isthmus.dr.values import DISCARD, FAILBACK, FAILOVER, KEEP, SWITCHOVER, Carry, Options, Plan, Report, Step, Tell
from isthmus.errors import ConfigError, IsthmusError, RivalError
from isthmus.model import Flow
from isthmus.web.looks import aside

if TYPE_CHECKING:
    from isthmus.engine.wishes import Answer, Wishing

Json = dict[str, Any]
Say = Callable[[str], None]
_PLAN_HOLDS_S = 600.0
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SWITCHES = ("source_is_lost", "fence_writers", "move_active", "rebuilt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A change of sides that was planned, and what it was planned with."""

    key: str
    flow: Flow
    options: Options
    made_at: float = field(default_factory=time.monotonic)

    @property
    def kind(self) -> str:
        return self.options.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How the last change of sides went, or goes."""

    flow: str
    kind: str
    steps: tuple[Json, ...] = ()
    report: Json | None = None
    error: Json | None = None

    @property
    def is_over(self) -> bool:
        return self.report is not None or self.error is not None


class Deeds:
    """Over the flows of the file. `carry` copies what nobody else copies."""

    def __init__(self, flows: Sequence[Flow], carry: Carry, say: Say) -> None:
        self.course: Course | None = None
        self._ends = {(flow.source.alias, flow.target.alias) for flow in flows}
        self._carry = carry
        self._say = say
        self._wanted: Wanted | None = None
        self._working: asyncio.Task[None] | None = None

    def shown(self) -> Json:
        """For every picture: how the last change of sides goes."""
        return {} if self.course is None else {"course": {**asdict(self.course), "over": self.course.is_over}}

    # -- wishes --------------------------------------------------------------------------------

    async def wish(self, deed: str, flow: Flow, body: Mapping[str, Any], by: str) -> Json:
        topics = frozenset(_texts(body.get("topics", [])))
        told = f"{deed} {flow.name} {', '.join(sorted(topics))}".rstrip()
        rate = _rate(body.get("rate")) if deed == "throttle" else None
        self._say(f"{told}{'' if deed != 'throttle' else f' to {rate}'}, asked from {by}")

        async def ask() -> Answer:
            from isthmus.engine.wishes import Wishing

            async with Wishing(flow) as wishing:
                return await _asked(wishing, deed, topics, rate)

        answer = await aside(ask)
        return {"flow": flow.name, "wish": answer.value, "heard_by": answer.heard_by}

    # -- changing sides ------------------------------------------------------------------------

    async def plan(self, flow: Flow, body: Mapping[str, Any]) -> Json:
        self._refuse_busy()
        options = self._options(flow, body)
        plan = await asyncio.to_thread(_planned, flow, options)
        self._wanted = Wanted(key=secrets.token_urlsafe(12), flow=flow, options=options)
        return {**plan_json(plan), "key": self._wanted.key, "source": flow.source.alias, "target": flow.target.alias}

    def start(self, flow: Flow, body: Mapping[str, Any], by: str) -> Json:
        self._refuse_busy()
        wanted = self._wanted
        if wanted is None or wanted.flow != flow or body.get("key") != wanted.key or _is_old(wanted):
            raise RivalError(
                "this plan is not the newest one any more; nothing was changed",
                where=f"flow {flow.name}",
                hint="look at the plan again",
                code="PLAN_OLD",
            )
        if body.get("confirm") != flow.name:
            raise ConfigError(
                "not confirmed; nothing was changed",
                where=f"flow {flow.name}",
                hint=f"type {flow.name}",
                code="NOT_CONFIRMED",
            )
        self._wanted = None
        self._say(f"{wanted.kind} of {flow.name}, asked from {by}")
        self.course = Course(flow=flow.name, kind=wanted.kind)
        self._working = asyncio.ensure_future(self._work(wanted))
        return self.shown()

    async def _work(self, wanted: Wanted) -> None:
        try:
            report = await asyncio.to_thread(_carried_out, wanted.flow, wanted.options, self._step)
            self._course(report=report_json(wanted.flow, report))
            self._say(f"{wanted.kind} of {wanted.flow.name} is done")
        except IsthmusError as error:
            self._course(error=error_json(error))
            self._say(f"{wanted.kind} of {wanted.flow.name} ended by [{error.code}] {error}")
        except Exception as error:  # a bug of ours; whoever waits for it must hear of it
            self._course(
                error={"code": "ISTHMUS", "error": f"{type(error).__name__}: {error}", "where": "", "hint": ""}
            )
            raise

    def _step(self, step: Step) -> None:
        if self.course is not None:
            self._course(steps=(*self.course.steps, asdict(step)))

    def _course(self, **changes: Any) -> None:
        if self.course is not None:
            self.course = replace(self.course, **changes)

    def _refuse_busy(self) -> None:
        if self.course is not None and not self.course.is_over:
            raise RivalError(
                f"a {self.course.kind} of {self.course.flow} is under way", hint="wait for its end", code="UNDER_WAY"
            )

    def _options(self, flow: Flow, body: Mapping[str, Any]) -> Options:
        kind, never_crossed = body.get("kind"), body.get("never_crossed", "")
        if kind not in (SWITCHOVER, FAILOVER, FAILBACK) or never_crossed not in ("", KEEP, DISCARD):
            raise ConfigError("unknown kind of change", where="kind", hint="switchover, failover or failback")
        return Options(
            carry=self._carry,
            kind=kind,
            never_crossed=never_crossed,
            two_way=(flow.target.alias, flow.source.alias) in self._ends,
            **{name: body.get(name) is True for name in _SWITCHES},
        )


async def _asked(wishing: Wishing, deed: str, topics: frozenset[str], rate: int | None) -> Answer:
    if deed == "pause":
        return await wishing.pause(topics)
    if deed == "resume":
        return await wishing.resume(topics)
    return await wishing.throttle(rate, topics)


def _planned(flow: Flow, options: Options) -> Plan:
    from isthmus.dr.failback import plan_failback
    from isthmus.dr.failover import plan_failover

    return plan_failback(flow, options) if options.kind == FAILBACK else plan_failover(flow, options)


def _carried_out(flow: Flow, options: Options, tell: Tell) -> Report:
    from isthmus.dr.failback import fail_back
    from isthmus.dr.failover import fail_over

    return fail_back(flow, options, tell) if options.kind == FAILBACK else fail_over(flow, options, tell)


def _is_old(wanted: Wanted) -> bool:
    return time.monotonic() - wanted.made_at > _PLAN_HOLDS_S


def _texts(given: object) -> list[str]:
    """What is no name goes no further: it would be put on record, and told to whoever reads the log."""
    if not isinstance(given, list) or not all(isinstance(each, str) and _NAME.fullmatch(each) for each in given):
        raise ConfigError(
            "topics are a list of names", where="topics", hint="letters, digits, dots, dashes, underscores"
        )
    return given


def _rate(given: object) -> int | None:
    """As `isthmus throttle` reads it."""
    if given in ("file", "none"):
        return None if given == "file" else 0
    try:
        return amount(str(given))
    except ValueError as error:
        raise ConfigError(f"{given!r}: {error}", where="rate", hint="for example 20MB, none, or file") from None


def error_json(error: IsthmusError) -> Json:
    return {"code": error.code, "error": error.message, "where": error.where, "hint": error.hint}
