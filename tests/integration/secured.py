"""A cluster with every kind of listener, and how its clients reach it: what tests of security share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tests.crossing import QUICK, RECORDS_ONLY
from tests.integration.command import unique
from tests.integration.tokens import TokenEndpoint

from isthmus.config.security import read_security
from isthmus.lab import LabCluster
from isthmus.lab.doors import Doors
from isthmus.lab.oracle import compare
from isthmus.model import Cluster, Flow, Sync, Topics

RECORDS = 400
MODULES = "org.apache.kafka.common.security."


@dataclass(frozen=True)
class Place:
    """The cluster, what its clients know, and a topic with records."""

    cluster: LabCluster
    doors: Doors
    tokens: TokenEndpoint
    topic: str

    def reach(self, listener: str, alias: str = "far", **settings: str) -> Cluster:
        """As a configuration file would say it; names have `_` for `.`."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        reading = read_security(named)
        assert not reading.wrong, reading.wrong
        bootstrap = (self.cluster.bootstrap_of(listener),)
        return Cluster(alias=alias, bootstrap=bootstrap, settings=named, security=reading.security)

    def trust(self) -> dict[str, str]:
        return {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": self.doors.authority.pem()}

    def login(self, mechanism: str, password: str = "") -> dict[str, str]:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        secret = password or self.doors.password
        jaas = f'{MODULES}{module} required username="{self.doors.user}" password="{secret}";'
        return {"sasl_mechanism": mechanism, "sasl_jaas_config": jaas}

    def bearer(self, secret: str = "client-secret") -> dict[str, str]:
        module = f"{MODULES}oauthbearer.OAuthBearerLoginModule"
        return {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": self.tokens.url,
            "sasl_jaas_config": f'{module} required clientId="isthmus" clientSecret="{secret}" scope="kafka";',
        }

    def flow(self, listener: str, **settings: str) -> Flow:
        return Flow(
            source=self.reach(listener, unique("far"), **settings),
            target=self.reach(listener, "near", **settings),
            topics=Topics(include=(self.topic,)),
            replication_factor=1,
            internal_replication_factor=1,
            sync=Sync(configs=False),
            mm2_topics=RECORDS_ONLY,
            tuning=QUICK,
        )

    def prove(self, flow: Flow, topic: str = "") -> None:
        topic = topic or self.topic
        assert self.prove_copy(topic, f"{flow.source.alias}.{topic}") >= RECORDS

    def prove_copy(self, topic: str, copy: str) -> int:
        """How many records a topic and its copy have, which are the same."""
        verdict = compare(self.cluster.bootstrap, topic, self.cluster.bootstrap, copy)
        assert verdict.equal, verdict
        return verdict.records


def holding(secrets: list[str], *folders: Path) -> list[str]:
    """Every file in these folders that has one of the secrets in it."""
    found = []
    for path in (path for folder in folders for path in folder.rglob("*")):
        try:
            data = path.read_bytes()
        except OSError:
            continue  # a folder, or gone meanwhile
        found += [f"{path}: secret {at}" for at, secret in enumerate(secrets) if secret.encode() in data]
    return found


def keeping_what_is_removed(keeper: Path, left: Path) -> dict[str, str]:
    """Environment of a command whose Python processes keep a copy of each file that they remove, in `left`/removed.

    Spark's own way to hand items over are files that are gone a moment later; on a real disk they could be found.
    """
    keeper.mkdir()
    (left / "removed").mkdir(parents=True)
    (keeper / "sitecustomize.py").write_text(_KEEPER.format(kept=str(left / "removed")))
    known = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{keeper}{os.pathsep}{known}" if known else str(keeper)}


_KEEPER = """
import os, uuid

_unlink = os.unlink

def unlink(path, *, dir_fd=None):
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK, dir_fd=dir_fd)
        with os.fdopen(file, "rb") as gone, open(os.path.join({kept!r}, uuid.uuid4().hex), "wb") as copy:
            copy.write(gone.read())
    except OSError:
        pass
    _unlink(path, dir_fd=dir_fd)

os.unlink = os.remove = unlink
"""
