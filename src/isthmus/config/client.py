"""A Kafka client's properties file (`bootstrap.servers`, security) as a cluster to talk to.

The same file that Kafka's own console tools take. Its values may be secrets and never appear in a message.
"""

from __future__ import annotations

from pathlib import Path

import javaproperties

from isthmus.config.exposed import exposed, refuse
from isthmus.config.places import Problem, refusal
from isthmus.config.secured import secured
from isthmus.config.security import read_security
from isthmus.config.substitute import Missing, Providers, Resolved, plain
from isthmus.config.values import broker
from isthmus.errors import ConfigError
from isthmus.mm2.filters import split_list
from isthmus.model import Cluster


def read_client(path: Path) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster of a client's properties file, and what is to be said of it; `${...}` in values is replaced."""
    providers = Providers(path.parent)
    try:
        settings = javaproperties.loads(path.read_bytes().decode("latin-1"))
    except OSError as error:
        what = f"the file cannot be read: {error.strerror or error}"
        raise ConfigError(what, where=str(path), hint="a Kafka client's properties file is meant") from None
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"`{error.escape}` is not an escape that Java reads", where=str(path)) from None
    try:
        settings = {name: providers.resolve(value) for name, value in settings.items()}
    except Missing as missing:
        raise refusal(path, [Problem(0, missing.text, missing.hint)]) from None
    servers = settings.pop("bootstrap.servers", "")
    brokers = split_list(servers)
    if not brokers:
        raise refusal(path, [Problem(0, "`bootstrap.servers` is missing", "add `bootstrap.servers = host:port`")])
    try:
        addresses = tuple(map(broker, brokers))
    except ValueError as error:
        text = f"what `{servers.text}` gives is not host:port" if isinstance(servers, Resolved) else str(error)
        raise refusal(path, [Problem(0, f"`bootstrap.servers`: {text}")]) from None
    cluster = Cluster(alias=path.stem, bootstrap=addresses, settings=settings)
    refuse(exposed([cluster], path, providers))
    bare: Cluster = plain(cluster)
    reading = read_security(bare.settings)
    if reading.wrong:
        raise refusal(path, [Problem(0, told.text, told.hint) for told in reading.wrong])
    return secured(bare, reading), tuple(told.text for told in reading.doubts)
