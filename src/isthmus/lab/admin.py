"""Topics of lab clusters, by librdkafka: the client that is independent of Isthmus' own wire.

The library is an optional extra, imported here on first use, so that the command line loads without
it. Every call has an end of its own; nothing is kept open between calls. `kafka` errors leave here
as MachineError, because a lab cluster is part of this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from isthmus.errors import MachineError
from isthmus.lab.reach import Reach, client_settings

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_SECONDS = 15.0
_PROBE_SECONDS = 5.0


def create(reach: Reach, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
    admin = client(reach)  # in a variable: a client that is collected gives up its requests
    from confluent_kafka.admin import NewTopic

    topic = NewTopic(name, partitions, replication_factor, config=dict(configs))
    _outcome(admin.create_topics([topic], request_timeout=_SECONDS)[name], name)


def delete(reach: Reach, name: str) -> None:
    admin = client(reach)
    _outcome(admin.delete_topics([name], request_timeout=_SECONDS)[name], name)


def has_leaders(reach: Reach, name: str, partitions: int) -> bool:
    found = client(reach).list_topics(name, timeout=_SECONDS).topics[name].partitions
    return len(found) == partitions and all(each.leader >= 0 for each in found.values())


def could_create(reach: Reach, replication_factor: int) -> bool:
    """Whether the cluster would create a topic now; it is asked, and does not do it."""
    admin = client(reach)
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    probe = NewTopic("isthmus-lab-probe", 1, replication_factor)
    asked = admin.create_topics([probe], request_timeout=_PROBE_SECONDS, validate_only=True)
    try:
        asked[probe.topic].result()
    except KafkaException:
        return False
    return True


def client(reach: Reach) -> AdminClient:
    """A client that says nothing on the console: brokers of a lab come and go on purpose."""
    try:
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise MachineError("the lab needs confluent-kafka", hint="pip install 'isthmus[lab]'", code="EXTRA") from error
    return AdminClient(client_settings(reach) | {"log_level": 0})


def _outcome(asked: Future[None], name: str) -> None:
    from confluent_kafka import KafkaException

    try:
        asked.result()
    except KafkaException as error:
        raise MachineError(f"topic {name}: {error.args[0].str()}", code="LAB") from error


def add_scram_user(reach: Reach, user: str, password: str, mechanisms: Iterable[str]) -> None:
    """Give a user a password for these mechanisms, and wait until the broker knows."""
    asking = client(reach)
    from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    infos = [ScramCredentialInfo(getattr(ScramMechanism, each.replace("-", "_")), 4096) for each in mechanisms]
    wanted = [UserScramCredentialUpsertion(user, info, password.encode()) for info in infos]
    # One request changes a user once.
    for each in wanted:
        _outcome(asking.alter_user_scram_credentials([each], request_timeout=_SECONDS)[user], f"user {user}")
