"""How Isthmus is run in the bench: the same command that a user types, in a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from isthmus.bench.crossing import Crossing


def command(crossing: Crossing, folder: Path, more: Mapping[str, object] | None = None) -> list[str]:
    """Write the flow's file into `folder`; the command that runs it. `more`: keys of the flow."""
    file = folder / "isthmus.yaml"
    flow = {
        "from": crossing.source_alias,
        "to": crossing.target_alias,
        "topics": list(crossing.topics),
        "lanes": crossing.lanes,
        "replication_factor": 1,
        "internal_replication_factor": 1,
        # As MirrorMaker 2 is run here: records only.
        "sync": {"configs": False},
        "mm2_topics": {"heartbeats": False, "carry_heartbeats": False, "offset_syncs": False, "checkpoints": False},
        **(more or {}),
    }
    clusters = {
        crossing.source_alias: {"bootstrap": crossing.source},
        crossing.target_alias: {"bootstrap": crossing.target},
    }
    file.write_text(json.dumps({"clusters": clusters, "flows": [flow]}, indent=2))  # JSON is YAML
    return [sys.executable, "-m", "isthmus", "run", str(file)]
