"""Checks a flow from this machine without changing anything: machine, brokers, TLS, transactions, logs, topics, rights,
clocks.

What must stay true: one check that fails hides no other that could still be made; what is told here is what a run
would meet, because it is asked with the run's own functions. Judgements on clusters are in `fitness`,
`certificates` and `clocks`, rights in `rights`, the plan in `plan`.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import Awaitable, Sequence
from pathlib import Path

from isthmus.engine import certificates, clocks, disks, fitness
from isthmus.engine.abilities import Finding, Severity, lacking
from isthmus.engine.checks import Check, Outcome, fail, failed, of_right, ok, warn
from isthmus.engine.masters import refuse_unfit
from isthmus.engine.plan import Plan, on_record, plan_all
from isthmus.engine.sides import clients, reach
from isthmus.errors import IsthmusError, MachineError, PartitionStopped, SourceError, TargetError
from isthmus.machine import java, java_version
from isthmus.mm2.filters import choose
from isthmus.model import Flow
from isthmus.wire.cluster import Client

_LITTLE_DISK = 1 << 30


async def examine(flows: Sequence[Flow], master: str, *, measure_clock: bool = False) -> list[Check]:
    """Everything that can be checked of these flows from here. `measure_clock` writes a record for each of them."""
    checks = examine_machine(flows, master)
    for flow in flows:
        checks += await examine_flow(flow, measure_clock=measure_clock)
    return checks


# -- this machine --------------------------------------------------------------------------------


def examine_machine(flows: Sequence[Flow], master: str) -> list[Check]:
    return [_java(), _spark(master), *_cores(flows, master), _disk()]


def _java() -> Check:
    try:
        return ok("java", "this machine", f"{java_version()} at {java()}")
    except MachineError as error:
        return failed("java", "this machine", error)


def _spark(master: str) -> Check:
    try:
        version = importlib.metadata.version("pyspark")
        refuse_unfit(master)
    except importlib.metadata.PackageNotFoundError:
        return fail("spark", "this machine", "pyspark is not installed", "pip install isthmus", MachineError)
    except IsthmusError as error:
        return failed("spark", f"--master {master}", error)
    return ok("spark", f"--master {master}", f"PySpark {version}")


def _cores(flows: Sequence[Flow], master: str) -> list[Check]:
    if not master.startswith("local"):
        return []
    lanes, cores = sum(flow.lanes for flow in flows), os.cpu_count() or 1
    if lanes > cores:
        text = f"{lanes} lanes share {cores} cores"
        return [warn("cores", "this machine", text, "more lanes than cores gain little; lower `lanes`")]
    return [ok("cores", "this machine", f"{cores} for {lanes} lane{'s' * (lanes > 1)}")]


def _disk() -> Check:
    folder = Path(os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir())
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        text = f"nothing can be written to {folder}: {error.strerror}"
        return fail("disk", "this machine", text, "point TMPDIR (and SPARK_LOCAL_DIRS) at another folder", MachineError)
    text = f"{free / 1e9:.1f} GB free in {folder}"
    if free < _LITTLE_DISK:
        return warn("disk", "this machine", text, "Spark keeps logs and small files there: have 1 GB free")
    return ok("disk", "this machine", text)


# -- a flow --------------------------------------------------------------------------------------


async def examine_flow(flow: Flow, *, measure_clock: bool = False) -> list[Check]:
    async with clients(flow) as (source, target):
        ends = [await _reached(source, SourceError), await _reached(target, TargetError)]
        checks = [check for end in ends for check in end]
        if not all(any(check.outcome is Outcome.ok for check in end) for end in ends):
            return checks  # one of them does not answer at all
        if source.cluster_id and source.cluster_id == target.cluster_id:
            checks.append(warn("flow", flow.name, "source and target are one cluster", "is that meant?"))
        checks += [_lack(finding) for finding in lacking(source.offer, target.offer, flow)]
        checks += await _tried("transactions", flow.target.alias, fitness.transactions(target, flow))
        checks += await _planned(source, target, flow)
        return checks + await _clocks(source, target, flow, measure_clock)


async def _reached(client: Client, kind: type[SourceError | TargetError]) -> list[Check]:
    alias = client.cluster.alias
    try:
        await reach(client, kind)
    except IsthmusError as error:
        return [failed(certificates.check_of(error.code), alias, error)]
    found = await _tried("brokers", alias, fitness.brokers(client, kind))
    return [*found, *await _tried("tls", alias, certificates.safety(client, kind))]


def _lack(finding: Finding) -> Check:
    """What a cluster is too old for: it ends a run, or leaves something undone, or is good to know."""
    if finding.severity is Severity.blocks:
        kind = SourceError if finding.side == "source" else TargetError
        return fail("abilities", finding.cluster, finding.text, finding.hint, kind)
    if finding.severity is Severity.limits:
        return warn("abilities", finding.cluster, finding.text, finding.hint)
    return ok("abilities", finding.cluster, finding.text)


async def _tried(check: str, about: str, work: Awaitable[list[Check]]) -> list[Check]:
    """A check that cannot be made is told as such."""
    try:
        return await work
    except IsthmusError as error:
        return [warn(check, about, f"cannot be told: {error}", error.hint)]


async def _planned(source: Client, target: Client, flow: Flow) -> list[Check]:
    try:
        plan = await plan_all(source, target, flow)
    except IsthmusError as error:
        return [failed("plan", flow.name, error)]
    names = [start.topic for start in plan.starts]
    return [
        *_plan_checks(plan, flow),
        *await _tried("source logs", flow.source.alias, fitness.source_logs(source, flow, plan.starts)),
        *await _tried("target topics", flow.target.alias, fitness.target_topics(target, flow, names)),
        *await _tried("disks", flow.target.alias, disks.room(target)),
        *await _tried("sizes", flow.target.alias, fitness.sizes(source, target, flow, names)),
        *_rights(plan),
    ]


async def _clocks(source: Client, target: Client, flow: Flow, measure: bool) -> list[Check]:
    names = choose(flow, source.topics)
    there = await _tried("clock", flow.source.alias, clocks.of_source(source, names))
    return there + await _tried("clock", flow.target.alias, _target_clock(target, flow, measure))


async def _target_clock(target: Client, flow: Flow, measure: bool) -> list[Check]:
    return await clocks.of_target(target, flow, await on_record(target, flow), measure=measure)


def _plan_checks(plan: Plan, flow: Flow) -> list[Check]:
    partitions = sum(start.partitions for start in plan.starts)
    carried = f"{len(plan.starts)} topics, {partitions} partitions"
    checks = [ok("plan", plan.flow, f"{carried}; {plan.summary()}")]
    checks += [
        fail("plan", plan.flow, f"{stop.source.topic} would stop: {stop.message}", stop.hint, PartitionStopped)
        for stop in plan.stopped
    ]
    checks += [warn("plan", plan.flow, problem, "see `isthmus plan`") for problem in plan.problems]
    if flow.lanes > max(1, partitions):
        hint = "lower `lanes`: those without a partition have nothing to do"
        checks.append(warn("lanes", plan.flow, f"{flow.lanes} lanes for {partitions} partitions", hint))
    return checks


def _rights(plan: Plan) -> list[Check]:
    """Those that keep something back come first."""
    found = sorted(map(of_right, plan.rights), key=lambda check: check.outcome is not Outcome.fail)
    return found or [ok("rights", plan.flow, "none is missing, on both clusters")]
