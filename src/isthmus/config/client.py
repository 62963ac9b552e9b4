"""A Kafka client's properties file (`bootstrap.servers`, security) as a cluster to talk to.

The same file that Kafka's own console tools take. Its values may be secrets and never appear in a message.
"""

from __future__ import annotations

from pathlib import Path

import javaproperties

from isthmus.config.places import Problem, refusal
from isthmus.config.substitute import Missing, Providers, Resolved, plain
from isthmus.config.values import broker
from isthmus.errors import ConfigError
from isthmus.mm2.filters import split_list
from isthmus.model import Cluster


def read_client(path: Path) -> Cluster:
    """The cluster of a client's properties file; `${...}` in values is replaced."""
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
    cluster: Cluster = plain(Cluster(alias=path.stem, bootstrap=addresses, settings=settings))
    return cluster
