"""What a fault is, and what it may lay hands on.

A kind is a generator: what stands before its `yield` is the fault, what stands behind it is the healing. An `outage`
cannot be survived while it lasts, so recovery counts from its end, and from its beginning otherwise: from the moment
that it yields (time.monotonic_ns), or from that yield.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from isthmus.torture.ground import Ground
from isthmus.torture.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    stage: Ground
    program: Program
    dice: random.Random


Deed = Callable[[Scene], Iterator[int | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of fault. `hold_s`: how long it lasts; 0: it is done at once. `others`: how many partitions it does not
    hit, so that they have to go on all the while."""

    name: str
    deed: Deed
    hold_s: float = 0.0
    outage: bool = False
    others: int = 0
    needs_tunnel: bool = False
