"""Every kind of fault that a storm knows: what is done, and how it is undone.

What must stay true: a fault is undone whatever happens meanwhile, and none needs a person, but for those that a person
caused: those are undone as that person would. Faults of one topic alone are in `bystander`. Which one comes when is
left to `storm`.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import psutil
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from isthmus.errors import MachineError
from isthmus.lab import admin
from isthmus.lab.network import Weather
from isthmus.torture import bystander
from isthmus.torture.load import patiently
from isthmus.torture.scene import Kind, Scene
from isthmus.torture.stage import BROKERS, EAST, PLAIN, TOPICS, TRANSACTION_S, TUNNEL, USER, WEST
from isthmus.torture.tools import tool

_SIDES = {"source": EAST, "target": WEST}
_FOUND_S = 60.0
_TOOL_S = 60.0
_ENDED_S = 60.0
_TRANSACTIONS = "__transaction_state"
_CONTROL = f"mm2-isthmus.{EAST}.internal"
_OTHER_LANE = sum(TOPICS.values()) // 2  # of two lanes


# --- the program -------------------------------------------------------------------------------


def _one_of(scene: Scene, found: Callable[[], Sequence[psutil.Process]], what: str) -> psutil.Process:
    """A process of the program; one that has just been killed comes back."""
    if not patiently(found, _FOUND_S):
        raise MachineError(f"the program has no {what}:\n{scene.program.tail()}", code="TORTURE")
    return scene.dice.choice(list(found()))


def _killed(scene: Scene, part: str) -> Iterator[int]:
    """With -9. What hung on it has to follow by itself (I8): records that it still brings are no sign of recovery."""
    victim = _one_of(scene, _part(scene, part), part)
    family = [victim]
    struck = time.monotonic_ns()
    with contextlib.suppress(psutil.NoSuchProcess):
        family += victim.children(recursive=True)
        struck = time.monotonic_ns()
        victim.kill()
    _, left = psutil.wait_procs(family, _ENDED_S)
    if left:
        raise MachineError(f"{part} was killed, and {left[0]} outlives it by {_ENDED_S:.0f} s", code="TORTURE")
    yield struck


def _halted(scene: Scene, part: str) -> Iterator[None]:
    """Stopped, as a machine that swaps or a virtual one that moves, and set free again: a zombie."""
    process = _one_of(scene, _part(scene, part), part)
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)


def _part(scene: Scene, part: str) -> Callable[[], Sequence[psutil.Process]]:
    program = scene.program
    parts: dict[str, Callable[[], Sequence[psutil.Process]]] = {
        "worker": program.workers,
        "daemon": program.daemons,
        "JVM": program.jvms,
        "program": lambda: [program.process],
    }
    if scene.stage.exit is not None:
        end = scene.stage.exit
        parts["tunnel's exit"] = lambda: [end.process]
    return parts[part]


def _taken_over(scene: Scene) -> Iterator[None]:
    first = scene.program.replace()
    yield
    try:
        first.wait(_ENDED_S)
    except subprocess.TimeoutExpired:
        first.kill()
        raise MachineError("a program that was replaced does not end", code="TORTURE") from None


# --- brokers -----------------------------------------------------------------------------------


def _broker_killed(scene: Scene, side: str) -> Iterator[None]:
    yield from _dead_for_a_while(scene, side, scene.dice.randint(1, BROKERS))


def _dead_for_a_while(scene: Scene, side: str, node: int) -> Iterator[None]:
    scene.stage[side].kill(node)
    try:
        yield
    finally:
        scene.stage[side].restart(node)


def _coordinator(scene: Scene) -> int:
    """A broker that leads a partition of the target's transactions."""
    topics = admin.client(scene.stage[WEST].bootstrap).list_topics(_TRANSACTIONS, timeout=_TOOL_S).topics
    leaders = sorted({each.leader for each in topics[_TRANSACTIONS].partitions.values() if each.leader > 0})
    return int(scene.dice.choice(leaders or [1]))


def _coordinator_killed(scene: Scene) -> Iterator[None]:
    yield from _dead_for_a_while(scene, WEST, _coordinator(scene))


def _coordinator_halted(scene: Scene) -> Iterator[None]:
    yield from _silent_for_a_while(scene, WEST, _coordinator(scene))


def _broker_halted(scene: Scene, side: str) -> Iterator[None]:
    yield from _silent_for_a_while(scene, side, scene.dice.randint(1, BROKERS))


def _silent_for_a_while(scene: Scene, side: str, node: int) -> Iterator[None]:
    cluster = scene.stage[side]
    cluster.signal(node, signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.signal(node, signal.SIGCONT)
        cluster.wait_ready()


def _rolled(scene: Scene, side: str) -> Iterator[None]:
    """Every broker in turn, in good order, as for an upgrade."""
    cluster = scene.stage[side]
    for node in cluster.brokers:
        cluster.shut_down(node)
        cluster.restart(node)
        time.sleep(1)
    yield


def _leaders_moved(scene: Scene, side: str) -> Iterator[None]:
    _place(scene, side, BROKERS)
    yield


def _reassigned(scene: Scene, side: str) -> Iterator[None]:
    """Every partition loses a replica, and gets a new one that has to be filled."""
    _place(scene, side, BROKERS - 1)
    try:
        yield
    finally:
        _place(scene, side, BROKERS)


def _place(scene: Scene, side: str, replicas: int) -> None:
    """Replicas of all topics to brokers by the dice; the first of them leads."""
    cluster = scene.stage[side]
    names = [scene.stage.copy(name) if side == WEST else name for name in TOPICS]
    places = [
        {"topic": name, "partition": each, "replicas": scene.dice.sample(range(1, BROKERS + 1), replicas)}
        for name, count in zip(names, TOPICS.values(), strict=True)
        for each in range(count)
    ]
    file = scene.stage.folder / f"move-{side}.json"
    file.write_text(json.dumps({"version": 1, "partitions": places}))
    words = "--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(file), "--execute"
    tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *words)
    if not patiently(lambda: _elected(cluster.bootstrap), _FOUND_S):
        raise MachineError(f"replicas of {cluster.name} are not filled in {_FOUND_S:.0f} s", code="TORTURE")


def _elected(bootstrap: str) -> bool:
    """Whether the first replica of each partition leads; one that is still being filled cannot."""
    words = "--bootstrap-server", bootstrap, "--election-type", "preferred", "--all-topic-partitions"
    try:
        tool("org.apache.kafka.tools.LeaderElectionCommand", *words)
    except MachineError as error:
        if "PreferredLeaderNotAvailable" in error.message:
            return False
        raise
    return True


def _limited(scene: Scene, side: str, quota: str) -> Iterator[None]:
    """A quota for everybody who has no other, so for writers or readers of that cluster too."""
    words = [
        "--bootstrap-server",
        scene.stage[side].bootstrap,
        "--alter",
        "--entity-type",
        "clients",
        "--entity-default",
    ]
    tool("kafka.admin.ConfigCommand", *words, "--add-config", f"{quota}=40000")
    try:
        yield
    finally:
        tool("kafka.admin.ConfigCommand", *words, "--delete-config", quota)


def _forgotten(scene: Scene) -> Iterator[None]:
    """By somebody who tidies up. It has to be there again by itself, before anything else happens."""
    asked = admin.client(scene.stage[WEST].bootstrap)

    def is_back() -> bool:
        return _CONTROL in asked.list_topics(timeout=_TOOL_S).topics

    admin.delete(scene.stage[WEST].bootstrap, _CONTROL)
    yield
    if not patiently(is_back, _FOUND_S):
        raise MachineError(f"{_CONTROL} was deleted, and nobody makes it anew:\n{scene.program.tail()}", code="TORTURE")


# --- who may do what ---------------------------------------------------------------------------


def _forbidden(scene: Scene, side: str, topic: str, operation: AclOperation) -> Iterator[None]:
    """A right is withdrawn, and granted again."""
    asked = admin.client(scene.stage[side].bootstrap)
    words = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation
    rule = AclBinding(*words, AclPermissionType.DENY)
    asked.create_acls([rule])[rule].result(_TOOL_S)
    try:
        yield
    finally:
        given = AclBindingFilter(*words, AclPermissionType.DENY)
        asked.delete_acls([given])[given].result(_TOOL_S)


def _locked_out(scene: Scene, side: str) -> Iterator[None]:
    """The password is another one, and everybody has to log in again."""
    scene.stage.set_password(side, "another")
    try:
        scene.stage.weather(side, Weather(cut=True))
        time.sleep(0.5)
        scene.stage.weather(side)
        yield
    finally:
        scene.stage.set_password(side)


# --- the network -------------------------------------------------------------------------------


def _weathered(scene: Scene, side: str, weather: Weather) -> Iterator[None]:
    scene.stage.weather(side, weather)
    try:
        yield
    finally:
        scene.stage.weather(side)


_WEATHERS: dict[str, tuple[Weather, float, bool]] = {
    "cut off": (Weather(cut=True), 3.0, True),
    "silent": (Weather(silent=True), 10.0, True),
    "far away": (Weather(delay_s=0.15), 6.0, False),
    "on a slow link": (Weather(bytes_per_s=200_000), 6.0, False),
    "reset again and again": (Weather(reset_after=200_000), 6.0, False),
    "in slices of a byte": (Weather(slice=1), 3.0, True),
}


def _of_program() -> list[Kind]:
    halted = partial(Kind, hold_s=1.5 * TRANSACTION_S, outage=True)
    return [
        Kind(name="worker killed", deed=partial(_killed, part="worker"), others=_OTHER_LANE),
        Kind(name="daemon of workers killed", deed=partial(_killed, part="daemon")),
        Kind(name="Spark's JVM killed", deed=partial(_killed, part="JVM")),
        Kind(name="program killed", deed=partial(_killed, part="program")),
        halted(name="worker halted", deed=partial(_halted, part="worker")),
        halted(name="program halted", deed=partial(_halted, part="program")),
        Kind(name="second program takes over", deed=_taken_over, outage=True),
    ]


def _of_side(word: str, side: str) -> list[Kind]:
    return [
        Kind(name=f"{word}: broker killed", deed=partial(_broker_killed, side=side), hold_s=2.0),
        Kind(name=f"{word}: broker halted", deed=partial(_broker_halted, side=side), hold_s=8.0, outage=True),
        Kind(name=f"{word}: rolling restart", deed=partial(_rolled, side=side), outage=True),
        Kind(name=f"{word}: leaders move", deed=partial(_leaders_moved, side=side)),
        Kind(name=f"{word}: partitions reassigned", deed=partial(_reassigned, side=side), hold_s=2.0, outage=True),
        Kind(name=f"{word}: password changed", deed=partial(_locked_out, side=side), hold_s=5.0, outage=True),
        *_of_weather(word, side),
    ]


def _of_weather(word: str, side: str) -> list[Kind]:
    return [
        Kind(name=f"{word}: {name}", deed=partial(_weathered, side=side, weather=each), hold_s=hold_s, outage=outage)
        for name, (each, hold_s, outage) in _WEATHERS.items()
    ]


def _of_rights() -> list[Kind]:
    limited = partial(Kind, hold_s=6.0, outage=True)
    writing = partial(_forbidden, side=WEST, topic=f"{EAST}.{PLAIN}", operation=AclOperation.WRITE)
    reading = partial(_forbidden, side=EAST, topic=PLAIN, operation=AclOperation.READ)
    others = sum(TOPICS.values()) - TOPICS[PLAIN]
    return [
        limited(name="target: quota", deed=partial(_limited, side=WEST, quota="producer_byte_rate")),
        limited(name="source: quota", deed=partial(_limited, side=EAST, quota="consumer_byte_rate")),
        limited(name="target: right to write withdrawn", deed=writing, others=others),
        limited(name="source: right to read withdrawn", deed=reading, others=others),
    ]


def _of_tunnel() -> list[Kind]:
    halted = partial(_halted, part="tunnel's exit")
    found = [
        Kind(name="tunnel: exit killed", deed=partial(_killed, part="tunnel's exit")),
        Kind(name="tunnel: exit halted", deed=halted, hold_s=1.5 * TRANSACTION_S, outage=True),
        *_of_weather("tunnel", TUNNEL),
    ]
    return [replace(kind, needs_tunnel=True) for kind in found]


def kinds(*, tunnel: bool = True) -> tuple[Kind, ...]:
    """All of them, in a fixed order; those of a tunnel only where there is one."""
    coordinator = [
        Kind(name="target's coordinator killed", deed=_coordinator_killed, hold_s=2.0),
        Kind(name="target's coordinator halted", deed=_coordinator_halted, hold_s=1.5 * TRANSACTION_S, outage=True),
    ]
    sides = [kind for word, side in _SIDES.items() for kind in _of_side(word, side)]
    control = Kind(name="target: control topic deleted", deed=_forgotten, hold_s=2.0)
    found = [*_of_program(), *coordinator, control, *_of_rights(), *sides, *bystander.kinds(), *_of_tunnel()]
    return tuple(kind for kind in found if tunnel or not kind.needs_tunnel)


def outside_kinds() -> tuple[Kind, ...]:
    """Those that need no hand on brokers, so for clusters that belong to somebody."""
    return (*_of_program(), *(kind for word, side in _SIDES.items() for kind in _of_weather(word, side)))
