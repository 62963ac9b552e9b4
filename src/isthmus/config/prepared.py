"""What one side of a tunnel needs: lines for its firewall, and the files that it runs from.

Owns the words of those files: the end's own file, a compose file, a systemd unit. Must stay true: what is written runs
as it is; secrets are only in files of mode 0600, and never in a line that is printed. Writing is left to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from isthmus.config import tunnels
from isthmus.config.load import Loaded
from isthmus.config.substitute import literal
from isthmus.errors import ConfigError
from isthmus.model import Cluster
from isthmus.security import Tunnel

SIDES = ("source", "destination")
_CONFIG, _KEY, _COMPOSE, _UNIT = "tunnel.yaml", "tunnel.key", "compose.yaml", "isthmus-tunnel.service"
_METRICS, _LOCAL = "127.0.0.1:9464", "127.0.0.1:1080"


@dataclass(frozen=True, slots=True)
class Opening:
    """One thing that a firewall must let through, as seen from this side. All of it is TCP."""

    direction: str  # "in" | "out"
    who: str
    to: str
    port: int
    why: str


@dataclass(frozen=True, slots=True)
class Written:
    name: str
    text: str
    mode: int


@dataclass(frozen=True, slots=True)
class Prepared:
    cluster: str
    side: str
    openings: tuple[Opening, ...]
    files: tuple[Written, ...]


def prepare(loaded: Loaded, side: str, alias: str = "") -> Prepared:
    """Everything for one side of the tunnel to one cluster of a file."""
    cluster, tunnel = _tunnelled(loaded, alias)
    reverse = tunnels.is_reverse(cluster.settings)
    peer = cluster.settings.get(tunnels.PEER, "").strip()
    listens = (side == "source") != reverse
    openings = _source(cluster, tunnel, reverse, peer) if side == "source" else _destination(tunnel, reverse, peer)
    files = (
        Written(_CONFIG, _config(cluster, tunnel, side, listens), 0o600),
        Written(_KEY, "".join(f"{secret.reveal()}\n" for secret in tunnel.secrets), 0o600),
        Written(_COMPOSE, _compose(tunnel, listens), 0o644),
        Written(_UNIT, _unit(cluster, listens), 0o644),
    )
    return Prepared(cluster.alias, side, tuple(openings), files)


def _tunnelled(loaded: Loaded, alias: str) -> tuple[Cluster, Tunnel]:
    ends = {end.alias: end for flow in loaded.flows for end in (flow.source, flow.target)}
    found = [(end, end.security.tunnel) for end in ends.values() if end.security.tunnel and alias in ("", end.alias)]
    if len(found) != 1:
        what = f"{len(found)} clusters of the file are" if not alias else f"the cluster `{alias}` is not"
        hint = (
            "give the cluster a `tunnel`"
            if not found
            else f"choose: --cluster {' or '.join(c.alias for c, _ in found)}"
        )
        raise ConfigError(f"{what} behind a tunnel", where=str(loaded.origin), hint=hint, code="TUNNEL")
    (cluster, tunnel), *_ = found
    return cluster, tunnel


def _source(cluster: Cluster, tunnel: Tunnel, reverse: bool, peer: str) -> list[Opening]:
    near = peer or "the machines that run Isthmus (driver and executors)"
    ours = "this machine"
    way = (
        Opening("out", ours, tunnel.host, tunnel.port, "the exit dials the meeting point at the destination")
        if reverse
        else Opening("in", near, f"{ours} ({tunnel.host})", tunnel.port, "clients dial the exit here")
    )
    brokers = [server.rpartition(":") for server in cluster.bootstrap]
    return [way] + [
        Opening("out", ours, host.strip("[]"), int(port), "the exit connects to brokers, also to those not named here")
        for host, _, port in brokers
    ]


def _destination(tunnel: Tunnel, reverse: bool, peer: str) -> list[Opening]:
    ours = "the machines that run Isthmus (driver and executors)"
    if not reverse:
        return [Opening("out", ours, tunnel.host, tunnel.port, "clients dial the exit at the source")]
    exit_ = peer or "the source's side of the tunnel"
    here = f"this machine ({tunnel.host})"
    return [
        Opening("in", exit_, here, tunnel.port, "the exit dials the meeting point here"),
        Opening("in", ours, here, tunnel.port, "clients come to the meeting point, too"),
    ]


def _config(cluster: Cluster, tunnel: Tunnel, side: str, listens: bool) -> str:
    place = {"listen": f"0.0.0.0:{tunnel.port}"} if listens else {"dial": str(tunnel)}
    data: dict[str, object] = {"role": "exit" if side == "source" else "entry", **place, "secret_file": _KEY}
    if side == "source":
        properties = {
            name: literal(value) for name, value in sorted(cluster.settings.items()) if name not in tunnels.NAMES
        }
        data["cluster"] = {"bootstrap": list(cluster.bootstrap)} | ({"properties": properties} if properties else {})
    else:
        data["local"] = _LOCAL
    data["metrics"] = _METRICS
    told = "only brokers that the cluster advertises are connected to; `allow` opens more" if side == "source" else ""
    about = f"# The {data['role']} of the tunnel to {cluster.alias}.{' ' + told.capitalize() + '.' if told else ''}\n"
    return about + yaml.safe_dump(data, sort_keys=False, width=110)


def _compose(tunnel: Tunnel, listens: bool) -> str:
    service: dict[str, object] = {
        "image": "${ISTHMUS_IMAGE:-isthmus}",
        "command": ["isthmus", "tunnel", "serve" if listens else "connect", f"/etc/isthmus/{_CONFIG}"],
        "restart": "unless-stopped",
        # The local door and the metrics are on loopback, which a container would have to itself.
        "network_mode": "host",
        "read_only": True,
        "tmpfs": ["/tmp:mode=0700"],  # noqa: S108 - inside of the container
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "ulimits": {"core": 0, "nofile": 65_536},
        "volumes": ["./:/etc/isthmus:ro"],  # the folder: a file that is replaced would stay the old one in there
    }
    ports = f"# The one port: {tunnel.port}/tcp\n" if listens else ""
    return ports + yaml.safe_dump({"services": {"isthmus-tunnel": service}}, sort_keys=False, width=110)


def _unit(cluster: Cluster, listens: bool) -> str:
    command = "serve" if listens else "connect"
    return f"""\
# Put {_CONFIG} and {_KEY} into /etc/isthmus, owned by the user `isthmus`, mode 0600.
[Unit]
Description=Isthmus tunnel to {cluster.alias}
After=network-online.target
Wants=network-online.target

[Service]
User=isthmus
ExecStart=/usr/bin/env isthmus tunnel {command} /etc/isthmus/{_CONFIG}
Restart=always
RestartSec=2
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
LimitCORE=0
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
"""
