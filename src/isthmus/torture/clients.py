"""librdkafka's settings for a cluster of a flow file, for clients of a storm that are not ours.

Owns how `Security` is said in librdkafka's words. What must stay true: brokers are verified as strictly as by the flow;
private keys stay in memory; what librdkafka cannot do is refused with what to do instead, before anything is changed.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

from isthmus.errors import ConfigError, IsthmusError
from isthmus.lab import admin
from isthmus.model import Cluster
from isthmus.security import Login, Store, Tls
from isthmus.wire.security.stores import identity, trusted

_ANSWER_S = 20.0
_CONNECT_S = 5.0


def settings_of(cluster: Cluster, folder: Path) -> dict[str, Any]:
    """`folder` takes what librdkafka reads from files only: certificates, no keys."""
    security = cluster.security
    login = _login(security.login, cluster.alias) if security.login else {}
    tls = _tls(security.tls, cluster.alias, folder) if security.tls else {}
    return {
        "bootstrap.servers": ",".join(cluster.bootstrap),
        "client.id": "isthmus-torture",
        "security.protocol": security.protocol,
        **login,
        **tls,
    }


def _login(login: Login, alias: str) -> dict[str, str]:
    if login.mechanism == "OAUTHBEARER" or login.delegated:
        what = "a delegation token" if login.delegated else "OAUTHBEARER"
        raise ConfigError(
            f"the login of cluster {alias} is by {what}, which the independent clients of torture do not speak here",
            hint="copy the file and give the copy a login by SCRAM, PLAIN or a certificate; the program under torture "
            "takes any, but then nobody else could judge it",
            code="TORTURE_CLIENT",
        )
    return {"sasl.mechanism": login.mechanism, "sasl.username": login.user, "sasl.password": login.password.reveal()}


def _tls(tls: Tls, alias: str, folder: Path) -> dict[str, str]:
    found = {"ssl.endpoint.identification.algorithm": "https" if tls.verify_name else "none"}
    if tls.trust is not None:
        found["ssl.ca.pem"] = _pem(trusted(tls.trust, f"cluster {alias}"))
    return found | (_own(tls.own, alias, folder) if tls.own is not None else {})


def _own(store: Store, alias: str, folder: Path) -> dict[str, str]:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    own = identity(store, f"cluster {alias}")
    key: bytes = own.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # Given as text, librdkafka takes the first certificate only, and a chain would be cut.
    chain = folder / f"{alias}.chain.pem"
    chain.write_text(_pem(own.chain))
    return {"ssl.key.pem": key.decode(), "ssl.certificate.location": str(chain)}


def _pem(certificates: list[bytes]) -> str:
    return "".join(map(ssl.DER_cert_to_PEM_cert, certificates))


def count_brokers(cluster: Cluster, settings: dict[str, Any], kind: type[IsthmusError]) -> int:
    """How many there are; `kind` if librdkafka does not reach them all from here."""
    from confluent_kafka import KafkaException

    said: list[str] = []
    asking = admin.client(settings | {"error_cb": lambda error: said.append(error.str())})
    try:
        found = asking.list_topics(timeout=_ANSWER_S).brokers.values()
    except KafkaException as error:
        asking.poll(0)  # what went wrong on the way is only told to who asks
        raise _unreached(cluster, kind, (said or [error.args[0].str()])[0]) from None
    for each in found:
        try:
            socket.create_connection((each.host, each.port), timeout=_CONNECT_S).close()
        except OSError as error:
            raise _unreached(cluster, kind, f"{each.host}:{each.port}: {error.strerror or error}") from None
    return len(found)


def _unreached(cluster: Cluster, kind: type[IsthmusError], why: str) -> IsthmusError:
    hint = "writers, reader and judge of torture are librdkafka: can it log in there, from this machine?"
    if cluster.security.tunnel is not None:
        hint = (
            "writers, reader and judge of torture are librdkafka, which knows no tunnel: run it on a machine that "
            "reaches the brokers directly, with a file without `tunnel`; to attack a tunnel, there is "
            "`isthmus torture --tunnel`"
        )
    where = f"cluster {cluster.alias}"
    return kind(f"torture's own clients do not reach the brokers: {why}", where=where, hint=hint)
