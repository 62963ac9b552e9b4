"""TLS and SASL towards real brokers: every protocol, mechanism and format of stores, and every way to be refused.

One broker with many listeners is both source and target. Content is written and compared by librdkafka through the
listener in clear; what is tested goes through the others.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.crossing import QUICK, Crossing, cross
from tests.integration.command import Running, Writing, committed, fill, topics_of, unique, wait_for
from tests.integration.framed import by_librdkafka, in_columns_by
from tests.integration.secured import MODULES, RECORDS, Place, holding, keeping_what_is_removed
from tests.integration.tokens import TokenEndpoint
from tests.integration.tunnelled import DIRECTIONS, Way, tunnel

from isthmus.engine.doctor import examine_flow
from isthmus.engine.exporter import Exporter
from isthmus.errors import SecurityRefused, SourceError
from isthmus.lab import Lab
from isthmus.lab.brokers import free_ports
from isthmus.lab.doors import BRIEF_MS, Doors
from isthmus.lab.identities import Authority, Issued
from isthmus.model import Cluster, Flow, Topics
from isthmus.observe.metrics import Looked, metrics_text
from isthmus.wire.advertised import advertised
from isthmus.wire.cluster import Client
from isthmus.wire.dial import dial
from isthmus.wire.link import Link

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    doors = Doors(folder=tmp_path_factory.mktemp("stores"), user="token")
    with Lab([doors.spec("doors")]) as lab, TokenEndpoint("isthmus", "client-secret") as tokens:
        cluster = lab["doors"]
        doors.add_users(cluster.bootstrap)
        topic = unique("secured-")
        fill(cluster, topic, RECORDS)
        yield Place(cluster, doors, tokens, topic)


@pytest.fixture
def way() -> Iterator[Way]:
    with tunnel("listens") as made:
        yield made


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


@pytest.mark.parametrize("exit_", DIRECTIONS)
def test_content_crosses_through_a_tunnel_with_tls_and_a_login_inside(place: Place, exit_: str) -> None:
    with tunnel(exit_) as way:
        flow = place.flow("SASLTLS", security_protocol="SASL_SSL", **place.trust(), **place.login("SCRAM-SHA-512"))
        flow = replace(flow, source=way.to(flow.source), target=way.to(flow.target))
        assert cross(flow).records == RECORDS
    place.prove(flow)
    assert {passage.result for passage in way.passages} == {"passed"}
    assert sum(passage.back for passage in way.passages) > RECORDS


def test_options_of_a_dataframe_reach_through_tls_a_login_and_a_tunnel(place: Place, way: Way) -> None:
    settings = {**place.trust(), **place.login("SCRAM-SHA-512"), "security_protocol": "SASL_SSL"}
    through = {"tunnel_dial": f"{way.tunnel.host}:{way.tunnel.port}", "tunnel_secret": shared(way)}
    kafka = {f"kafka_{name}": value for name, value in (settings | through).items()}
    bootstrap = place.cluster.bootstrap_of("SASLTLS")
    found = in_columns_by(kafka_bootstrap_servers=bootstrap, subscribe=place.topic, **kafka)
    assert found == {n: rows for n, rows in by_librdkafka(place.cluster.bootstrap, place.topic).items() if rows}
    assert sum(map(len, found.values())) == RECORDS
    assert {passage.result for passage in way.passages} == {"passed"}


def test_a_brokers_certificate_is_told_through_a_tunnel_and_not_the_tunnels(place: Place, way: Way) -> None:
    async def seen(cluster: Cluster) -> tuple[bytes, str] | None:
        host, _, port = cluster.bootstrap[0].rpartition(":")
        link = await dial(cluster, host, int(port), 60.0)
        try:
            return link.peer()
        finally:
            link.close()

    tls = place.reach("TLS", security_protocol="SSL", **place.trust())
    assert asyncio.run(seen(way.to(tls))) == asyncio.run(seen(tls))
    assert asyncio.run(seen(tls)) is not None
    assert asyncio.run(seen(way.to(place.reach("PLAINTEXT")))) is None


def test_an_exit_learns_from_the_cluster_where_it_may_connect_to(place: Place) -> None:
    """What brokers advertise depends on the listener that they are asked through."""
    for listener, settings in (("PLAINTEXT", {}), ("TLS", {"security_protocol": "SSL", **place.trust()})):
        host, _, port = place.cluster.bootstrap_of(listener).rpartition(":")
        assert advertised(place.reach(listener, **settings)) == {(host, int(port))}
    with pytest.raises(SecurityRefused):
        advertised(place.reach("SASLTLS", security_protocol="SSL", **place.trust()))


@pytest.mark.parametrize(("listener", "code"), [("ELSEWHERE", "TLS_NAME"), ("EXPIRED", "TLS_EXPIRED")])
def test_a_brokers_certificate_is_checked_through_a_tunnel_too(place: Place, listener: str, code: str) -> None:
    with tunnel("listens") as way, pytest.raises(SecurityRefused) as caught:
        asyncio.run(Client(way.to(place.reach(listener, security_protocol="SSL", **place.trust()))).start())
    assert caught.value.code == code


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


def use_store(place: Place, name: str) -> None:
    """The listener TLS shows another certificate to whoever connects from now on; connections that live are let be."""
    entry = ConfigEntry("listener.name.tls.ssl.keystore.location", str(place.doors.folder / name))
    entry.incremental_operation = AlterConfigOpType.SET
    broker = ConfigResource(ConfigResource.Type.BROKER, str(place.cluster.brokers[0]), incremental_configs=[entry])
    asked = AdminClient({"bootstrap.servers": place.cluster.bootstrap, "log_level": 0})
    asked.incremental_alter_configs([broker])[broker].result(30)


def test_a_certificate_that_expires_under_a_running_flow_is_named_and_a_new_one_is_taken_up(place: Place) -> None:
    topic = unique("expiring-")
    place.cluster.create_topic(topic, 2)
    flow = replace(
        place.flow("TLS", security_protocol="SSL", **place.trust()),
        target=place.reach("PLAINTEXT", "near"),
        topics=Topics(include=(topic,)),
        tuning=replace(QUICK, epoch_seconds=0.5),
    )
    with Crossing(flow) as crossing, Writing(place.cluster.bootstrap, topic, 2, per_second=200) as writing:
        crossing.until(lambda status: status.records > 0)
        use_store(place, "expired.p12")
        try:
            crossing.until(lambda status: any("certificate has expired" in event for event in status.events))
        finally:
            use_store(place, "broker.p12")
        before = writing.produced
        crossing.until(lambda status: status.records > before + RECORDS)
        writing.__exit__(None, None, None)
        crossing.until_copied(writing.produced)
    place.prove(flow, topic)


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
    assert "`token` by PLAIN" in plain.message
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
    own = place.doors.authority.issue("isthmus")
    for path in (own.pkcs12(tmp_path / "own.p12", "right-one"), own.jks(tmp_path / "own.jks", "right-one")):
        for passwords in ({"ssl_keystore_password": "hunter2"}, {}):
            stores = {"ssl_keystore_location": str(path), **passwords}
            error = refused(place.reach("MUTUAL", security_protocol="SSL", **place.trust(), **stores))
            assert error.code == "STORE"
            assert f"the key store ({path}) cannot be used" in error.message
            assert "password" in error.message


def test_a_flow_whose_login_fails_at_the_start_ends_with_that_code(place: Place) -> None:
    login = place.login("PLAIN", "hunter2")
    with pytest.raises(SourceError) as caught:
        cross(place.flow("SASLTLS", security_protocol="SASL_SSL", **place.trust(), **login))
    assert caught.value.code == "SASL_LOGIN"
    assert caught.value.hint


# --- the command ------------------------------------------------------------------------------


def test_the_doctor_tells_of_chains_names_ends_and_logins(place: Place) -> None:
    """Certificates of the lab end within a day."""
    tls = {"security_protocol": "SSL", **place.trust()}
    found = _safety(place.flow("SASLTLS", security_protocol="SASL_SSL", **place.trust(), **place.login("PLAIN")))
    assert ("login", "ok", "PLAIN as User:token") in found
    said = [text for check, outcome, text in found if (check, outcome) == ("tls", "warn")]
    assert any("the certificate of broker 1" in text and "in 1 days" in text for text in said), said
    assert any("the authority in the trust store (CN=lab authority)" in text for text in said), said
    unnamed = _safety(place.flow("ELSEWHERE", **tls, ssl_endpoint_identification_algorithm=""))
    assert ("tls", "warn", "names in certificates are not checked") in unnamed
    for listener, says in (("EXPIRED", "certificate has expired"), ("ELSEWHERE", "is not for `127.0.0.1`")):
        failed = [row for row in _safety(place.flow(listener, **tls)) if row[1] == "fail"]
        assert {check for check, _, _ in failed} == {"tls"}
        assert all(says in text for _, _, text in failed), failed


def test_metrics_tell_when_certificates_end(place: Place) -> None:
    flow = place.flow("SASLTLS", security_protocol="SASL_SSL", **place.trust(), **place.login("PLAIN"))
    with Exporter([flow]) as exporter:
        (found,) = exporter.look().flows
    ends = {each.whose.partition(" (")[0]: each.until for each in found.source.certificates}
    assert set(ends) == {"the certificate of broker 1", "the authority in the trust store"}
    assert all(0 < until - time.time() < 2 * 86_400 for until in ends.values())
    assert 'whose="the authority in the trust store"' in metrics_text(Looked(flows=[found]))


def _safety(flow: Flow) -> list[tuple[str, str, str]]:
    checks = asyncio.run(examine_flow(flow))
    return [
        (c.check, c.outcome.value, c.text) for c in checks if c.check in ("tls", "login") or c.outcome.value == "fail"
    ]


@pytest.mark.spark
def test_nothing_that_a_run_says_or_leaves_behind_holds_a_secret(place: Place, way: Way, tmp_path: Path) -> None:
    """By Spark, and through a tunnel: its secret must reach the executors, and nobody else."""
    topic, alias, key_password = unique("hidden-"), unique("far"), "key-password-of-isthmus"
    fill(place.cluster, topic, RECORDS)
    own = place.doors.authority.issue("isthmus")
    secrets = [place.doors.password, key_password, own.key_pem(key_password).splitlines()[2], shared(way)]
    file = _hidden_file(place, way, tmp_path, topic, alias, own, key_password)
    left, (port,) = tmp_path / "left", [next(free_ports())]
    (left / "events").mkdir(parents=True)
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{left}/events"}
    conf |= {"spark.ui.enabled": "true", "spark.ui.port": str(port)}
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    env = {"TMPDIR": str(left), "SPARK_LOCAL_DIRS": str(left)} | keeping_what_is_removed(tmp_path / "keeper", left)
    with Running("run", file, *words, env=env) as running:
        wait_for(lambda: copied(place, f"{alias}.{topic}"), 120, "records")
        shown = [" ".join(process.cmdline()) for process in (psutil.Process(running.pid), *running.family())]
        shown += [_page(port, page) for page in ("environment", "jobs", "stages", "executors")]
        assert any("CoarseGrained" in page or "spark.app.name" in page for page in shown)
        assert holding(secrets, left, place.cluster.log_dir(1)) == []
        running.interrupt()
        ended = running.ended()
    assert ended.code == 0, ended
    assert place.prove_copy(topic, f"{alias}.{topic}") == RECORDS
    wait_for(lambda: sum(passage.back for passage in way.passages) > RECORDS, 120, "bytes through the tunnel")
    assert holding([alias], place.cluster.log_dir(1)), "what is there is not found"
    assert list((left / "events").rglob("*")), "there is no event log"
    assert holding(["rootLogger.level"], left / "removed"), "what was removed is not kept"
    assert holding([alias], left / "removed") == [], "Spark is given orders without a file"
    assert holding(secrets, left, place.cluster.log_dir(1)) == []
    for secret in secrets:
        assert secret not in "\n".join([*shown, str(ended)])


def shared(way: Way) -> str:
    return way.tunnel.secrets[0].reveal()


def _hidden_file(place: Place, way: Way, folder: Path, topic: str, alias: str, own: Issued, key_password: str) -> Path:
    jaas = f'{MODULES}plain.PlainLoginModule required username="token" password="{place.doors.password}";'
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": place.doors.authority.pem()}
    source = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas, **trust}
    key = {"ssl.keystore.certificate.chain": own.chain_pem(), "ssl.keystore.key": own.key_pem(key_password)}
    target = {"security.protocol": "SSL", **trust, **key, "ssl.key.password": key_password}
    through = {"dial": str(way.tunnel), "secret": shared(way)}
    clusters = {
        alias: {"bootstrap": place.cluster.bootstrap_of("SASLTLS"), "tunnel": through, "properties": source},
        "near": {"bootstrap": place.cluster.bootstrap_of("MUTUAL"), "properties": target},
    }
    file = folder / "hidden.yaml"  # JSON is YAML
    # Both ends are one cluster: heartbeats that are carried would go round.
    flow = {"from": alias, "to": "near", "topics": [topic], "mm2_topics": {"carry_heartbeats": False}}
    file.write_text(json.dumps({"clusters": clusters, "flows": [flow]}))
    file.chmod(0o600)
    return file


def copied(place: Place, topic: str) -> bool:
    return topic in topics_of(place.cluster.bootstrap) and sum(committed(place.cluster.bootstrap, topic)) >= RECORDS


def _page(port: int, page: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}/", timeout=30) as answer:
        return str(answer.read().decode())
