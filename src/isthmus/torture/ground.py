"""What a storm needs of the place where it happens, be it the lab's own clusters or somebody's staging system.

Sides are EAST, the source, and WEST, the target, whatever their owner calls them. What must stay true: the program
under torture reaches brokers through doors, whose weather can be changed; clients of the storm never pass a door.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from isthmus.lab import LabCluster
from isthmus.lab.network import Weather
from isthmus.lab.reach import Reach
from isthmus.torture.kept import Kept


class Ground(Protocol):
    """`exit`: that of a tunnel which is attacked itself, if there is one."""

    exit: Kept | None

    @property
    def folder(self) -> Path:
        """For files of the storm; gone when it is over."""

    @property
    def topics(self) -> Mapping[str, int]:
        """Two, with their partitions: of the plain writer, then of the one with transactions."""

    def reach(self, side: str) -> Reach:
        """How clients that are not ours get to a cluster."""

    def copy(self, topic: str) -> str:
        """What a topic is called on the target."""

    def flow_file(self) -> Path:
        """What the program runs from; nobody else may read it."""

    def weather(self, side: str, weather: Weather | None = None) -> None:
        """From now on; none: fine."""

    def __getitem__(self, side: str) -> LabCluster:
        """Brokers that may be laid hands on; MachineError where they are not ours."""

    def open_transactions(self) -> list[str]:
        """Transactional ids of the flow that have left one open on the target, where that can be asked."""

    def set_password(self, side: str, password: str = "") -> None:
        """The program's own again, or another; MachineError where logins are not ours."""
