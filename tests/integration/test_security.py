"""TLS and SASL towards real brokers: every protocol, mechanism and format of stores, and every way to be refused.

One broker with many listeners is both source and target. Content is written and compared by librdkafka through the
listener in clear; what is tested goes through the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.crossing import QUICK, RECORDS_ONLY, Crossing, cross
from tests.integration.command import Writing, fill, unique
from tests.integration.tokens import TokenEndpoint

from isthmus.config.security import read_security
from isthmus.errors import SecurityRefused, SourceError
from isthmus.lab import Lab, LabCluster
from isthmus.lab.doors import BRIEF_MS, Doors
from isthmus.lab.identities import Authority
from isthmus.lab.oracle import compare
from isthmus.model import Cluster, Flow, Sync, Topics
from isthmus.wire.cluster import Client
from isthmus.wire.dial import dial
from isthmus.wire.link import Link

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

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
        here = self.cluster.bootstrap
        verdict = compare(here, topic, here, f"{flow.source.alias}.{topic}")
        assert verdict.equal, verdict
        assert verdict.records >= RECORDS


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    doors = Doors(folder=tmp_path_factory.mktemp("stores"))
    with Lab([doors.spec("doors")]) as lab, TokenEndpoint("isthmus", "client-secret") as tokens:
        cluster = lab["doors"]
        doors.add_users(cluster.bootstrap)
        topic = unique("secured-")
        fill(cluster, topic, RECORDS)
        yield Place(cluster, doors, tokens, topic)


def crosses(place: Place, listener: str, **settings: str) -> None:
    flow = place.flow(listener, **settings)
    status = cross(flow)
    assert status.records == RECORDS
    place.prove(flow)


# --- what works -------------------------------------------------------------------------------


def test_content_crosses_over_tls(place: Place) -> None:
    crosses(place, "TLS", security_protocol="SSL", **place.trust())


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM", "inline"])
def test_content_crosses_with_a_certificate_of_ours_and_each_kind_of_stores(
    place: Place, kind: str, tmp_path: Path
) -> None:
    crosses(place, "MUTUAL", security_protocol="SSL", **stores(place, kind, tmp_path))


def stores(place: Place, kind: str, folder: Path) -> dict[str, str]:
    """A trust store and a key store of one kind; the key has a password of its own where the format can have that."""
    own, trust, key = place.doors.authority.issue("isthmus"), folder / "trust", folder / "own"
    found = {f"ssl_{what}store_type": "PEM" if kind == "inline" else kind for what in ("trust", "key")}
    if kind == "inline":
        found["ssl_keystore_key"] = own.key_pem().replace("\n", " ")
        return found | place.trust() | {"ssl_keystore_certificate_chain": own.chain_pem()}
    if kind == "PEM":
        key.write_text(own.key_pem("key-hush") + own.chain_pem())
        trust.write_text(place.doors.authority.pem())
        found["ssl_key_password"] = "key-hush"
    else:
        make = {"JKS": (place.doors.authority.jks, own.jks), "PKCS12": (place.doors.authority.pkcs12, own.pkcs12)}
        for path, write in zip((trust, key), make[kind], strict=True):
            write(path, "hush-hush")
        found |= {f"ssl_{what}store_password": "hush-hush" for what in ("trust", "key")}
    return found | {"ssl_truststore_location": str(trust), "ssl_keystore_location": str(key)}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_content_crosses_with_a_login_in_clear(place: Place, mechanism: str) -> None:
    crosses(place, "SASL", security_protocol="SASL_PLAINTEXT", **place.login(mechanism))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_content_crosses_with_a_login_inside_tls(place: Place, mechanism: str) -> None:
    login = place.bearer() if mechanism == "OAUTHBEARER" else place.login(mechanism)
    crosses(place, "SASLTLS", security_protocol="SASL_SSL", ssl_protocol="TLSv1.2", **place.trust(), **login)


def test_logins_are_renewed_on_the_living_connection(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker ends a login after two seconds, by cutting the connection at the next request."""
    links: list[Link] = []

    async def noted(*arguments: Any) -> Link:
        links.append(await dial(*arguments))
        return links[-1]

    monkeypatch.setattr("isthmus.wire.cluster.dial", noted)
    topic = unique("brief-")
    place.cluster.create_topic(topic, 2)
    flow = replace(
        place.flow("BRIEF", security_protocol="SASL_SSL", **place.trust(), **place.login("SCRAM-SHA-512")),
        target=place.reach("BRIEF", "near", security_protocol="SASL_SSL", **place.trust(), **place.bearer()),
        topics=Topics(include=(topic,)),
    )
    with Crossing(flow) as crossing, Writing(place.cluster.bootstrap, topic, 2, per_second=200) as writing:
        crossing.until(lambda status: status.records > 0)
        until = time.monotonic() + 2.2 * BRIEF_MS / 1000
        crossing.until(lambda status: status.records >= RECORDS and time.monotonic() > until)
        writing.__exit__(None, None, None)
        crossing.until_copied(writing.produced)
    reasons = {str(link.lost.message) for link in links if link.lost}
    assert reasons == {"connection lost: closed by us"}
    place.prove(flow, topic)


def test_stores_that_are_replaced_on_disk_count_from_the_next_connection_on(place: Place, tmp_path: Path) -> None:
    good, foreign = place.doors.authority, Authority("stranger")
    trust, key = tmp_path / "trust.pem", tmp_path / "own.p12"
    stores = {"ssl_truststore_location": str(trust), "ssl_keystore_location": str(key)}
    cluster = place.reach("MUTUAL", security_protocol="SSL", ssl_keystore_password="pw", **stores)

    def put(trusted: Authority, signer: Authority) -> None:
        for path in (trust, key):
            path.unlink(missing_ok=True)
        trust.write_text(trusted.pem())
        signer.issue("isthmus").pkcs12(key, "pw")

    put(good, good)
    started(cluster)
    put(good, foreign)
    assert refused(cluster).code == "TLS_CLIENT"
    put(foreign, good)
    assert refused(cluster).code == "TLS_UNTRUSTED"
    put(good, good)
    started(cluster)
    key.write_bytes(key.read_bytes()[:100])
    assert refused(cluster).code == "STORE"


# --- what is refused --------------------------------------------------------------------------


def started(cluster: Cluster) -> Client:
    async def start() -> Client:
        client = Client(cluster)
        try:
            await client.start()
        finally:
            client.close()
        return client

    return asyncio.run(start())


def refused(cluster: Cluster) -> SecurityRefused:
    with pytest.raises(SecurityRefused) as caught:
        started(cluster)
    error = caught.value
    assert f"{cluster.alias} {cluster.bootstrap[0]}" in error.where
    assert error.hint
    assert "hunter2" not in f"{error!r} {error} {error.hint} {error.__cause__!r}"
    return error


def test_every_refusal_has_a_code_of_its_own_and_says_what_to_do(place: Place) -> None:
    tls, sasl = {"security_protocol": "SSL", **place.trust()}, {"security_protocol": "SASL_SSL", **place.trust()}
    in_clear = {"security_protocol": "SASL_PLAINTEXT"}
    stranger = {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": Authority("stranger").pem()}
    cases = {
        "TLS_UNTRUSTED": place.reach("TLS", **tls | stranger),
        "TLS_EXPIRED": place.reach("EXPIRED", **tls),
        "TLS_NAME": place.reach("ELSEWHERE", **tls),
        "TLS_CLIENT": place.reach("MUTUAL", **tls),
        "TLS_PLAIN_PORT": place.reach("PLAINTEXT", **tls),
        "TLS_NEEDED": place.reach("TLS"),
        "SASL_LOGIN": place.reach("SASLTLS", **sasl, **place.login("SCRAM-SHA-256", "hunter2")),
        "SASL_NEEDED": place.reach("SASL"),
        "SASL_UNWANTED": place.reach("TLS", **sasl, **place.login("PLAIN")),
        "OAUTH": place.reach("SASLTLS", **sasl, **place.bearer("hunter2")),
    }
    assert {code: refused(cluster).code for code, cluster in cases.items()} == {code: code for code in cases}
    plain = refused(place.reach("SASL", **in_clear, **place.login("PLAIN", "hunter2")))
    assert plain.code == "SASL_LOGIN"
    assert "`alice` by PLAIN" in plain.message
    mechanism = refused(place.reach("SASL", **in_clear, **place.bearer()))
    assert mechanism.code == "SASL_MECHANISM"
    for offered in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert offered in mechanism.message
    without_tls = refused(place.reach("SASLTLS", **in_clear, **place.login("PLAIN")))
    assert without_tls.code == "TLS_NEEDED"


def test_a_name_that_differs_is_accepted_only_by_the_explicit_setting(place: Place) -> None:
    tls = {"security_protocol": "SSL", **place.trust()}
    started(place.reach("ELSEWHERE", **tls, ssl_endpoint_identification_algorithm=""))
    assert refused(place.reach("ELSEWHERE", **tls, ssl_endpoint_identification_algorithm="https")).code == "TLS_NAME"
    # The chain is verified all the same.
    stranger = {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": Authority("stranger").pem()}
    unknown = place.reach("ELSEWHERE", **tls | stranger, ssl_endpoint_identification_algorithm="")
    assert refused(unknown).code == "TLS_UNTRUSTED"


def test_a_store_with_another_password_is_refused(place: Place, tmp_path: Path) -> None:
    own = place.doors.authority.issue("isthmus").pkcs12(tmp_path / "own.p12", "right")
    stores = {"ssl_keystore_location": str(own), "ssl_keystore_password": "hunter2"}
    error = refused(place.reach("MUTUAL", security_protocol="SSL", **place.trust(), **stores))
    assert error.code == "STORE"
    assert str(own) in error.message


def test_a_flow_whose_login_fails_at_the_start_ends_with_that_code(place: Place) -> None:
    login = place.login("PLAIN", "hunter2")
    with pytest.raises(SourceError) as caught:
        cross(place.flow("SASLTLS", security_protocol="SASL_SSL", **place.trust(), **login))
    assert caught.value.code == "SASL_LOGIN"
    assert caught.value.hint
