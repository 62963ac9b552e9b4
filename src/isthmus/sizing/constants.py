"""The constants of sizing: what a lane's work costs, by measurement, and where each figure came from.

What must stay true: a figure that was not measured says so in `origins`. CPU-seconds are those of lanes and driver
without Spark and brokers, on one core of the machine that `machine` describes; another machine has others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from isthmus.errors import ConfigError

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Sizes in MB and GB of 10^6 and 10^9 bytes; costs in CPU-seconds of one core."""

    passed_s_per_gb: float  # of stored bytes, whatever is done with them beside
    merged_s_per_gb: Mapping[str, float]  # beside that, by codec, of records as they were written: small batches
    batch_s: float  # a batch that is merged with others
    transaction_s: float
    touch_s: float  # a partition in a transaction
    tls_s_per_gb: float  # each time that bytes pass a TLS connection of ours
    tunnel_exit_s_per_gb: float
    broker_s_per_gb: float  # both clusters' brokers, of records as they were written, with codec lz4
    ratio: Mapping[str, float]  # stored bytes to bytes as written, of JSON, by codec
    lane_mb: float  # the process of a lane, at its peak
    driver_mb: float
    jvm_mb: float
    latency_p50_ms: float
    latency_p99_ms: float
    transactions_per_s: float  # of a lane that has little to do
    machine: Mapping[str, Any]
    origins: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def load(path: Path | None = None) -> Constants:
    """Those of a file, or those that came with the program."""
    where = str(path) if path else "the program's own constants"
    try:
        text = (path or resources.files("isthmus.sizing") / "calibration.json").read_text(encoding="utf-8")
        given = json.loads(text)
        return Constants(**{field.name: given[field.name] for field in fields(Constants)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"no constants can be read: {error!r}",
            where=where,
            hint="`isthmus bench --calibrate` writes such a file",
        ) from error
