"""Whether a Spark master can be used: told at once, not after the minutes in which Spark would find out.

Owns what a master may look like, and that no secret travels to executors in clear. What must stay true: nothing is
started, and importing this imports neither Spark nor a lane.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from isthmus import machine
from isthmus.errors import ConfigError, MachineError
from isthmus.security import SEAL_VARIABLE, has_seal_key, holds_secret

if TYPE_CHECKING:
    from isthmus.model import Flow

_MASTER = re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[[^\]]+\]|spark://.+|k8s://.+|yarn")
_CONNECT_S = 5.0
_ENCRYPTION = ("spark.network.crypto.enabled", "spark.io.encryption.enabled")


def refuse_unfit(master: str, flows: Sequence[Flow] = (), extra: Mapping[str, str] | None = None) -> None:
    """Tell at once what would make Spark fail later, no usable Java, a master that is none or does not listen; or what
    would show secrets."""
    if not _MASTER.fullmatch(master):
        raise ConfigError(
            f"{master!r} is no Spark master",
            where="--master",
            hint="use local[*], local[N], spark://host:7077, k8s://https://host:443 or yarn",
            code="MASTER",
        )
    machine.java()
    _refuse_unsealed(master, flows, extra or {})
    if master.startswith("spark://"):
        _refuse_deaf(master)


def _refuse_unsealed(master: str, flows: Sequence[Flow], extra: Mapping[str, str]) -> None:
    """On a local master we make the key ourselves; others must be given one, or be told to encrypt everything."""
    encrypted = all(extra.get(name) == "true" for name in _ENCRYPTION)
    if has_seal_key() or master.startswith("local") or encrypted or not any(map(_shows_secret, flows)):
        return
    raise MachineError(
        "logins and keys of the clusters would travel to executors in clear",
        where=f"--master {master}",
        hint=f"give this process and the executors the same {SEAL_VARIABLE} (`openssl rand -base64 32`) by their "
        f"environment or a mounted secret; or set {' and '.join(_ENCRYPTION)} to true with --conf (docs/security.md)",
        code="SEAL",
    )


def _shows_secret(flow: Flow) -> bool:
    return holds_secret(flow.source.security) or holds_secret(flow.target.security)


def _refuse_deaf(master: str) -> None:
    """Spark itself would try for a minute before it says so. One master of several is enough."""
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
        except (OSError, ValueError, OverflowError) as error:
            reasons.append(f"{address}: {error}")
        else:
            return
    raise MachineError(
        f"no Spark master answers: {'; '.join(reasons)}",
        where=f"--master {master}",
        hint="check the address (the master's page shows it) and that it can be reached from here",
        code="SPARK",
    )
