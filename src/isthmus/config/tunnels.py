"""The `tunnel.*` settings of a cluster into the typed value that `dial` goes by.

    tunnel.dial     host:port of the other end of the tunnel (of its exit, or of the meeting point where the exit dials)
    tunnel.secret   the shared secret; several, one a line: the first that the other end knows is used
    tunnel.reverse  true: the exit dials. It makes no difference to a client, but to `isthmus tunnel prepare`
    tunnel.peer     address of the side that dials, for the firewall lines of `prepare`

They stand beside Kafka's own settings, so that every format can hold them. Must stay true: no message holds a secret.
"""

from __future__ import annotations

from collections.abc import Mapping

from isthmus.config.values import broker
from isthmus.errors import ConfigError
from isthmus.security import Secret, Tunnel
from isthmus.tunnel.secret import doubt, several

DEFAULT_PORT = 7443
DIAL, SECRET, REVERSE, PEER = "tunnel.dial", "tunnel.secret", "tunnel.reverse", "tunnel.peer"
NAMES = (DIAL, SECRET, REVERSE, PEER)

Said = list[tuple[str, str, str]]  # setting, what, what to do


def read_tunnel(settings: Mapping[str, str], wrong: Said, doubts: Said) -> Tunnel | None:
    """None if there is no tunnel, or something is wrong with it."""
    dial, secret = (settings.get(name, "").strip() for name in (DIAL, SECRET))
    if not dial and not secret:
        return None
    if not dial or not secret:
        missing, there = (DIAL, SECRET) if secret else (SECRET, DIAL)
        wrong.append((there, f"`{missing}` is missing", "a tunnel needs both"))
        return None
    place, secrets = _place(dial, wrong), _secrets(secret, wrong)
    if settings.get(REVERSE, "false").strip().lower() not in ("true", "false", ""):
        wrong.append((REVERSE, f"`{REVERSE}`: true or false is meant", ""))
    if place is None or not secrets:
        return None
    if said := doubt(secrets):
        doubts.append((SECRET, said, ""))
    return Tunnel(host=place[0], port=place[1], secrets=secrets)


def is_reverse(settings: Mapping[str, str]) -> bool:
    return settings.get(REVERSE, "").strip().lower() == "true"


def _place(dial: str, wrong: Said) -> tuple[str, int] | None:
    try:
        host, _, port = broker(dial).rpartition(":")
    except ValueError:
        wrong.append((DIAL, f"`{DIAL}` is not host:port", f"the default port is {DEFAULT_PORT}"))
        return None
    return host.strip("[]"), int(port)


def _secrets(text: str, wrong: Said) -> tuple[Secret, ...]:
    try:
        return several(text)
    except ConfigError as error:
        wrong.append((SECRET, error.message, error.hint))
        return ()
