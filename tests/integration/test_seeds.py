"""Files of other tools as their own documentation shows them, with addresses, passwords and topics filled in.

MirrorMaker 2's properties, Strimzi's resource, kafka-cloud-replicator's setenv.sh, kafka-reo's environment: each moves
records between two clusters that want certificates or logins where the file has them. They run in this process: what
the command and Spark add is tested elsewhere. The lab has one broker on each side, so that factors of three are set to
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.crossing import cross
from tests.integration.command import fill, prove, topics_of, unique
from tests.integration.sources import START_MS, Row, write

from isthmus.config.load import load, load_environment
from isthmus.lab import Lab, LabCluster
from isthmus.lab.doors import Doors
from isthmus.lab.oracle import compare

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RECORDS = 400
SAMPLES = Path(__file__).parents[1] / "unit" / "samples"


@dataclass(frozen=True)
class Pair:
    """Two clusters with the same authority, user and password."""

    source: LabCluster
    target: LabCluster
    doors: Doors


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    doors = Doors(folder=tmp_path_factory.mktemp("stores"), user="token")
    with Lab([doors.spec("here"), doors.spec("there")]) as lab:
        yield Pair(lab["here"], lab["there"], doors)


def equal(pair: Pair, topic: str, copy: str, records: int = RECORDS) -> None:
    verdict = compare(pair.source.bootstrap, topic, pair.target.bootstrap, copy)
    assert verdict.equal, verdict
    assert verdict.records == records


# --- MirrorMaker 2 ----------------------------------------------------------------------------

FROM_TLS = """\
clusters=source, target
source.bootstrap.servers={tls}
source.security.protocol=SSL
source.ssl.truststore.password=password
source.ssl.truststore.location={trust}
target.bootstrap.servers={clear}
# enable and configure individual replication flows
source->target.enabled=true
source->target.topics={topic}
"""
FROM_LOGIN = """\
clusters=source, target
source.bootstrap.servers={login}
source.security.protocol=SASL_SSL
source.ssl.protocol=TLSv1.2
source.sasl.mechanism=PLAIN
source.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="token" \
password="{password}";
target.bootstrap.servers={clear}
# enable and configure individual replication flows
source->target.enabled=true
source->target.topics={topic}
"""
TO_LOGIN = """\
clusters=source, target
source.bootstrap.servers=${{KAFKA_SOURCE_BROKERS}}
target.bootstrap.servers=${{KAFKA_TARGET_BROKERS}}
target.security.protocol=SASL_SSL
target.ssl.protocol=TLSv1.2
target.ssl.endpoint.identification.algorithm=https
target.sasl.mechanism=PLAIN
target.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="token" \
password=${{KAFKA_TARGET_APIKEY}};
# enable and configure individual replication flows
source->target.enabled=true
source->target.topics={topic}
tasks.max=10
"""
ONE_BROKER = "replication.factor=1\noffset.storage.replication.factor=1\n"


@pytest.mark.parametrize("text", [FROM_TLS, FROM_LOGIN, TO_LOGIN], ids=["from TLS", "from a login", "to a login"])
def test_files_of_mirrormaker_2_with_tls_and_logins_run_as_they_are(
    pair: Pair, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique("orders-")
    fill(pair.source, topic, RECORDS)
    trust = pair.doors.authority.jks(tmp_path / "truststore.jks", "password") if text is FROM_TLS else None
    tls, login = (pair.source.bootstrap_of(listener) for listener in ("TLS", "SASLTLS"))
    known = {"tls": tls, "login": login, "clear": pair.target.bootstrap, "trust": trust}
    file = tmp_path / "mm2.properties"
    file.write_text(text.format(topic=topic, password=pair.doors.password, **known) + ONE_BROKER)
    file.chmod(0o600)
    env = {
        "SSL_CERT_FILE": str(pair.doors.trusted_pem()),  # what "the system trusts"
        "KAFKA_SOURCE_BROKERS": pair.source.bootstrap,
        "KAFKA_TARGET_BROKERS": pair.target.bootstrap_of("SASLTLS"),
        "KAFKA_TARGET_APIKEY": pair.doors.password,
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    (flow,) = load(file).flows
    assert cross(flow).stopped == ()
    prove(pair.source, pair.target, "source", topic)


# --- Strimzi ----------------------------------------------------------------------------------


def test_a_resource_of_strimzi_with_certificates_on_both_sides_runs_as_it_is(pair: Pair, tmp_path: Path) -> None:
    """The pattern is `.*`: everything crosses under its own name; secrets are files, as Kubernetes mounts them."""
    topics = [unique("prod.orders-"), unique("prod_bills-")]
    for topic in topics:
        fill(pair.source, topic, RECORDS)
    text = (SAMPLES / "strimzi-v1beta2.yaml").read_text()
    for said, meant in {
        "source-route:443": pair.source.bootstrap_of("MUTUAL"),
        "dest-service:9093": pair.target.bootstrap_of("MUTUAL"),
        "factor: 3": "factor: 1",
        # Other files here call their source so, too; with other names for the copies that would be another flow.
        "alias: source": "alias: prod",
        "sourceCluster: source": "sourceCluster: prod",
    }.items():
        assert said in text
        text = text.replace(said, meant)
    file = tmp_path / "mirrormaker2.yaml"
    file.write_text(text)

    loaded = load(file, secrets=_mounted(pair.doors, tmp_path / "secrets"))
    (flow,) = loaded.flows
    assert cross(flow).stopped == ()

    for topic in topics:
        equal(pair, topic, topic)


def _mounted(doors: Doors, folder: Path) -> Path:
    for side in ("source", "dest"):
        own = doors.authority.issue(f"{side}-user")
        secrets = {
            f"{side}-user/user.crt": own.chain_pem(),
            f"{side}-user/user.key": own.key_pem(),
            f"{side}-cluster-cluster-ca-cert/ca.crt": doors.authority.pem(),
        }
        for name, text in secrets.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o600)
    return folder


# --- kafka-cloud-replicator, kafka-reo --------------------------------------------------------


def test_a_setenv_of_kafka_cloud_replicator_with_keys_on_both_sides_runs_as_it_is(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = unique("eu.xaz.bills-"), unique("us.xaz.bills-")
    for each in (topic, other):
        fill(pair.source, each, RECORDS)
    file = tmp_path / "setenv.sh"
    file.write_text(_filled(pair))
    file.chmod(0o600)
    monkeypatch.setenv("SSL_CERT_FILE", str(pair.doors.trusted_pem()))

    (flow,) = load(file).flows
    assert cross(flow).stopped == ()

    equal(pair, topic, f"{topic}.copy")
    assert f"{other}.copy" not in topics_of(pair.target.bootstrap)


def _filled(pair: Pair) -> str:
    """The template with addresses and keys; the lines of the tunnel have tests of their own."""
    values = {
        "SOURCE_BROKER_SERVERS": pair.source.bootstrap_of("SASLTLS"),
        "DESTINATION_BROKER_SERVERS": pair.target.bootstrap_of("SASLTLS"),
        **{f"{side}_API_KEY": pair.doors.user for side in ("SOURCE", "DESTINATION")},
        **{f"{side}_API_SECRET": pair.doors.password for side in ("SOURCE", "DESTINATION")},
    }
    lines = (SAMPLES / "setenv.sh").read_text().splitlines()
    kept = [line for line in lines if "TUNNEL_IP" not in line and "SHARED_SECRET" not in line]
    return "\n".join(_with_value(line, values) for line in kept) + "\n"


def _with_value(line: str, values: dict[str, str]) -> str:
    name = line.removeprefix("export ").partition("=")[0]
    return f"export {name}={values[name]}" if name in values else line


def test_an_environment_of_kafka_reo_runs_as_it_is_and_loses_nothing(pair: Pair) -> None:
    """Partitions are kept, as it promises; so are headers and times, which it loses, null keys and tombstones, which
    it fails on, and the record at offset 0."""
    topic, copy = unique("source-topic-"), unique("destination-topic-")
    fill(pair.source, topic, RECORDS)
    odd: list[Row] = [
        {"value": None, "key": b"gone"},
        {"value": b"no key", "partition": 1},
        {"value": b"v", "key": b"k", "headers": [("h", b"1"), ("h", None)], "timestamp": START_MS},
    ]
    write(pair.source.bootstrap, topic, odd)
    environment = {
        "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS": pair.source.bootstrap,
        "KAFKA_CLUSTERS_SOURCE_TOPIC": topic,
        "KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS": pair.target.bootstrap,
        "KAFKA_CLUSTERS_DESTINATION_TOPIC": copy,
    }

    (flow,) = load_environment(environment).flows
    assert cross(flow).stopped == ()

    equal(pair, topic, copy, RECORDS + len(odd))
