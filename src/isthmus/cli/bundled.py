"""What a debug bundle is made of: each part by itself, so that one that fails is told and takes no other with it.

Only reads. What must stay true: every part takes a bounded time, also when clusters are away; parts are made of what
other commands print as JSON, and hold no record of any topic but the control topic's.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus import __version__
from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.config.load import Loaded
    from isthmus.model import Flow

_WITHIN_S = 90.0
_VARIABLES = ("ISTHMUS_", "SPARK_", "JAVA_", "PYSPARK_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file of the bundle: what it is about, and its value, or why there is none."""

    name: str
    about: str
    value: Any = None
    error: str = ""


async def of_clusters(loaded: Loaded, records: int) -> list[Part]:
    """Everything that a cluster is asked for."""
    flows = loaded.flows
    asked = [
        _part("doctor.json", "what `isthmus doctor` says", lambda: _doctor(loaded)),
        *(_part(f"status-{_word(flow)}.json", "`isthmus status -o json`", _later(_status, flow)) for flow in flows),
        *(_part(f"plan-{_word(flow)}.json", "`isthmus plan -o json`", _later(_plan, flow)) for flow in flows),
        *(
            _part(
                f"control-{_word(flow)}.json",
                f"the last {records} records of the control topic: leases, reports, events, stops, gaps, decisions",
                _later(lambda one: _control(one, records), flow),
            )
            for flow in flows
        ),
    ]
    return list(await asyncio.gather(*asked))


def of_machine() -> list[Part]:
    return [
        Part(
            name="versions.json", about="versions of Isthmus, Python, Java and libraries; platform", value=_versions()
        ),
        Part(name="spark.json", about="Spark's version and default settings, secrets hidden", value=_spark()),
    ]


def of_config(loaded: Loaded) -> Part:
    from isthmus.cli.config import as_data

    return Part(
        name="config.json", about="`isthmus config show -o json`: every value that counts", value=as_data(loaded)
    )


def _later(ask: Callable[[Flow], Awaitable[Any]], flow: Flow) -> Callable[[], Awaitable[Any]]:
    return lambda: ask(flow)


def _word(flow: Flow) -> str:
    return f"{flow.source.alias}-to-{flow.target.alias}"


async def _part(name: str, about: str, ask: Callable[[], Awaitable[Any]]) -> Part:
    try:
        async with asyncio.timeout(_WITHIN_S):
            return Part(name=name, about=about, value=await ask())
    except TimeoutError:
        return Part(name=name, about=about, error=f"no answer within {_WITHIN_S:.0f} s")
    except IsthmusError as error:
        return Part(name=name, about=about, error=f"[{error.code}] {error}")
    except Exception:  # noqa: BLE001 - a bug of ours is what a bundle is for: it is told, and the rest collected
        return Part(name=name, about=about, error=traceback.format_exc())


# --- what clusters are asked ------------------------------------------------------------------


async def _doctor(loaded: Loaded) -> Any:
    from isthmus.cli.doctor import as_json
    from isthmus.engine.doctor import examine

    return as_json(await examine(loaded.flows, "local[*]"))


async def _status(flow: Flow) -> Any:
    from isthmus.engine.outlook import Outlook

    async with Outlook(flow) as outlook:
        return (await outlook.look()).as_json()


async def _plan(flow: Flow) -> Any:
    from isthmus.engine.plan import make_plan
    from isthmus.engine.plan_form import plan_json

    return plan_json(await make_plan(flow))


async def _control(flow: Flow, records: int) -> Any:
    from isthmus.engine.control import decode, never_run
    from isthmus.engine.sides import clients, reach
    from isthmus.errors import TargetError
    from isthmus.wire.journal import Journal

    async with clients(flow) as (_, target):
        await reach(target, TargetError)
        await target.refresh([flow.control_topic])
        if flow.control_topic not in target.topics:
            raise never_run(flow, "")
        journal = Journal(target, flow.control_topic)
        end = await journal.end()
        found = await journal.read(max(await journal.beginning(), end - records), end)
    told = [(record, *decode(record)) for record in found]
    return [
        {"offset": record.offset, "time_ms": record.timestamp, "key": key, "value": value}
        for record, key, value in told
    ]


# --- this machine -----------------------------------------------------------------------------


def _versions() -> dict[str, Any]:
    return {
        "isthmus": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "java": _java(),
        "libraries": _libraries(),
        "variables": sorted(name for name in os.environ if name.startswith(_VARIABLES)),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _java() -> str:
    from isthmus.machine import java, java_version

    try:
        return f"{java_version()} at {java()}"
    except IsthmusError as error:
        return str(error)


def _libraries() -> dict[str, str]:
    """Of what Isthmus asks for."""
    try:
        needed = importlib.metadata.requires("isthmus") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = {}
    for text in needed:
        name = "".join(letter if letter.isalnum() or letter in "-_." else " " for letter in text).split()[0]
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _spark() -> dict[str, Any]:
    from isthmus.config.credentials import is_secret

    home = os.environ.get("SPARK_HOME", "")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else "")
    path = Path(folder) / "spark-defaults.conf"
    lines = path.read_text(errors="replace").splitlines() if folder and path.is_file() else []
    pairs = [line.replace("=", " ", 1).split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
    conf = {pair[0]: "***" if is_secret(pair[0]) else pair[-1].strip() for pair in pairs}
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        version = "not installed"
    return {"version": version, "defaults": str(path) if lines else "", "conf": conf}
