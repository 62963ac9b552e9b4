"""What the old source holds that never crossed: found, counted, and not passed over without a decision.

What must stay true: it is everything between the freeze and the end that the old source had when it came back, and
nothing that a failback has brought since.
"""

from __future__ import annotations

import time

from isthmus.dr.mirror import SIDE
from isthmus.dr.scene import Scene
from isthmus.dr.values import Leftover
from isthmus.engine.control import write as write_control
from isthmus.engine.offsets.align import read
from isthmus.engine.resolve.record import DECIDED, Gap, gap_pair
from isthmus.errors import ConfigError
from isthmus.wire.fetch import EARLIEST, LATEST, READ_COMMITTED, settled_offsets

_COUNTED = 10_000_000  # records that are counted one by one at most, in each partition
_SHOWN = 5


async def leftovers(scene: Scene) -> list[Leftover]:
    places = scene.state.places
    ends = await settled_offsets(scene.source, list(places), LATEST, READ_COMMITTED)
    begins = await settled_offsets(scene.source, list(places), EARLIEST)
    found = []
    for tp, place in sorted(places.items()):
        first, past = max(place.source, begins[tp]), ends[tp] if place.back < 0 else place.back
        if first < past:
            seen = await read(scene.source, tp, first, past, _COUNTED)
            if len(seen):
                found.append(
                    Leftover(topic=tp.topic, partition=tp.partition, first=first, past=past, records=len(seen))
                )
    return found


def refuse_undecided(scene: Scene, left: list[Leftover]) -> None:
    if left and not (scene.options.never_crossed or scene.state.never_crossed):
        told = ", ".join(f"{one.topic}-{one.partition} offsets {one.first} to {one.past - 1}" for one in left[:_SHOWN])
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        raise ConfigError(
            f"{sum(one.records for one in left):,} records on {scene.flow.source.alias} never crossed: {told}{more}",
            where=f"flow {scene.flow.name}",
            hint=f"--never-crossed keep copies them to side topics (<copy>.{SIDE}) on {scene.flow.target.alias}; "
            "--never-crossed discard leaves them out",
            code="NEVER_CROSSED",
        )


async def record_gaps(scene: Scene, left: list[Leftover]) -> None:
    """The flow goes on behind what never crossed: a gap by decision, as `isthmus gaps` and `verify` show it."""
    gaps = [
        Gap(
            topic=one.topic,
            partition=one.partition,
            code="NEVER_CROSSED",
            at=time.time(),
            first=one.first,
            past=one.past,
            source_id=str(scene.source.topic_id(one.topic)),
            accepted=DECIDED,
        )
        for one in left
    ]
    if gaps:
        await write_control(scene.hold.journal, dict(gap_pair(gap) for gap in gaps))
