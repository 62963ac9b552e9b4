"""Progress that was deleted: a start that finds another progress topic than it had, and copies with records in them.

Without this such a start would copy everything again, and say nothing. The id of the progress topic stands in the
snapshot, which is in another topic. What must stay true: nothing is refused that never was copied, nor what an operator
has said anew (`isthmus positions --set`). Where topics have no ids it goes unnoticed. `still_there` finds out while a
flow runs, before each order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from isthmus.engine.ledger import Ledger
from isthmus.errors import TargetError
from isthmus.model import NO_ID, TopicPartition
from isthmus.wire.cluster import Client
from isthmus.wire.fetch import EARLIEST, LATEST, settled_offsets

_LOOKS, _PAUSE_S = 6, 0.5


async def still_there(target: Client, ledger: Ledger, topic: str) -> int:
    """How many partitions the progress topic has. A broker that has just started may not know it yet."""
    for _ in range(_LOOKS):
        info = target.topics.get(topic)
        if info is not None and info.topic_id != ledger.topic_id and NO_ID not in (info.topic_id, ledger.topic_id):
            break
        if info is not None and info.partitions:
            return len(info.partitions)
        await asyncio.sleep(_PAUSE_S)
        await target.refresh([topic])
    raise TargetError(
        "the progress topic was deleted or made anew while the flow ran: nothing would tell how far copies go",
        where=f"cluster {target.cluster.alias}, topic {topic}",
        hint="find out who deleted it; the next start says which positions are to be said anew",
        code="PROGRESS_LOST",
    )


async def refuse_forgotten(
    target: Client, ledger: Ledger, snapshot: dict[str, Any] | None, copies: Mapping[TopicPartition, TopicPartition]
) -> None:
    """`copies`: of each source partition. To be called when all that the progress topic holds was read."""
    here = ledger.snapshot()["topic_id"]
    if not snapshot or snapshot.get("topic_id") in (here, str(NO_ID)):
        return
    unknown = {copy: source for source, copy in copies.items() if source not in ledger.positions}
    begins = await settled_offsets(target, list(unknown), EARLIEST)
    ends = await settled_offsets(target, list(unknown), LATEST)
    if lost := sorted(source for copy, source in unknown.items() if ends[copy] > begins[copy]):
        first = lost[0]
        more = f" and {len(lost) - 1} more partitions" if len(lost) > 1 else ""
        raise TargetError(
            f"the progress topic was deleted or made anew: nothing tells any more how far {first}{more} was copied",
            where=f"cluster {target.cluster.alias}",
            hint=f"say where to go on: isthmus positions FILE --set {first.topic}:{first.partition}=OFFSET --yes; or "
            "delete the copies and run with --forget TOPIC",
            code="PROGRESS_LOST",
        )
