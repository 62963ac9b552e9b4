"""Disks of brokers that are full, or gone: a cluster that is about to take no more.

A broker whose disk is full ends at its next write, and what it led has no leader. So it is asked for before something
begins that must not stop in its middle. What must stay true: what brokers do not tell (they are older than 3.3, or we
lack DESCRIBE on the cluster) is no reason to refuse anything. Nothing is changed.
"""

from __future__ import annotations

from isthmus.engine.checks import Check, fail, ok, warn
from isthmus.errors import TargetError
from isthmus.wire.cluster import Client
from isthmus.wire.health import Disk, disks

LEAST_BYTES = 16 << 20  # a segment's indexes are that large before anything is in them


async def full_disks(client: Client) -> list[str]:
    """Those that take nothing any more, in words."""
    return [_told(disk) for disk in await disks(client) if _is_full(disk)]


async def room(target: Client) -> list[Check]:
    """For a report."""
    alias, found = target.cluster.alias, await disks(target)
    hint = "make room, or add a disk: the broker ends when it is full"
    if full := [_told(disk) for disk in found if _is_full(disk)]:
        return [fail("disks", alias, "; ".join(full), hint, TargetError)]
    known = [disk for disk in found if disk.usable >= 0]
    if not known:
        return [warn("disks", alias, "brokers do not tell how much room they have")]
    least = min(known, key=lambda disk: disk.usable)
    return [ok("disks", alias, f"at least {_size(least.usable)} free everywhere (broker {least.node})")]


def _is_full(disk: Disk) -> bool:
    return bool(disk.error) or 0 <= disk.usable < LEAST_BYTES


def _told(disk: Disk) -> str:
    where = f"broker {disk.node}, {disk.folder}"
    return f"{where}: {disk.error}" if disk.error else f"{where}: {_size(disk.usable)} of {_size(disk.total)} left"


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
