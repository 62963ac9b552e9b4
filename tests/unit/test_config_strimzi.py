"""Strimzi's KafkaMirrorMaker2, v1beta2 and v1."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.config.load import Loaded, load
from isthmus.errors import ConfigError
from isthmus.model import Groups, Naming, Topics

SAMPLES = Path(__file__).parent / "samples"
SEED = (SAMPLES / "strimzi-v1beta2.yaml").read_text()
V1 = (SAMPLES / "strimzi-v1.yaml").read_text()


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    for name, key, text in (
        *((f"{end}-user", "user.crt", f"CERT {end}\n") for end in ("source", "dest")),
        *((f"{end}-user", "user.key", f"KEY {end}\n") for end in ("source", "dest")),
        *((f"{end}-cluster-cluster-ca-cert", "ca.crt", f"CA {end}\n") for end in ("source", "dest")),
        ("west-ca", "a.crt", "CA a"),
        ("west-ca", "b.crt", "CA b"),
        ("west-ca", "ca.p12", "no"),
        ("west-user", "password", "hunter2\n"),
    ):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / key).write_text(text)
    return folder


def loaded(tmp_path: Path, text: str, secrets: Path | None) -> Loaded:
    file = tmp_path / "mm2.yaml"
    file.write_text(text)
    return load(file, secrets=secrets, environ={})


def refused(tmp_path: Path, text: str, secrets: Path | None) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text, secrets)
    told = f"{caught.value} [{caught.value.hint}]"
    assert "hunter2" not in told
    return told


def test_the_resource_of_the_field_is_read(tmp_path: Path, secrets: Path) -> None:
    result = loaded(tmp_path, SEED, secrets)
    (flow,) = result.flows
    assert flow.name == "source->dest"
    assert flow.naming == Naming(policy="identity")
    assert (flow.lanes, flow.replication_factor, flow.internal_replication_factor) == (12, 3, 3)
    assert flow.source.bootstrap == ("source-route:443",)
    assert flow.source.settings == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA source",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERT source",
        "ssl.keystore.key": "KEY source",
    }
    assert flow.target.settings["ssl.keystore.key"] == "KEY dest"
    assert (flow.sync.acls, flow.mm2_topics.group_offsets, flow.mm2_topics.heartbeats) == (False, True, True)
    assert result.places["flows.source->dest.lanes"].where == "mm2.yaml:56"
    assert "these fields have no meaning here, where no Kafka Connect runs: replicas, version" in result.warnings
    assert any("refresh.groups.interval.seconds" in warning for warning in result.warnings)
    assert any("progress that Strimzi's" in warning for warning in result.warnings)


def test_the_newer_form_is_read(tmp_path: Path, secrets: Path) -> None:
    result = loaded(tmp_path, V1, secrets)
    (flow,) = result.flows
    assert flow.name == "east->west"
    assert flow.source.bootstrap == ("e1:9092", "e2:9092")
    assert flow.topics == Topics(include=("orders", "bills.*"), exclude=("bills-old",))
    assert flow.groups == Groups(include=("team-.*",), exclude=("team-x",))
    assert (flow.lanes, flow.compression) == (2, "zstd")
    assert flow.target.settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ada" password="hunter2";',
        "ssl.endpoint.identification.algorithm": "",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA a\nCA b",
    }


def test_what_strimzi_does_not_deploy_is_off(tmp_path: Path, secrets: Path) -> None:
    topics = loaded(tmp_path, V1, secrets).flows[0].mm2_topics
    assert (topics.heartbeats, topics.checkpoints, topics.offset_syncs) == (False, False, True)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("", "", "the secret `source-user` (key `user.crt`) is needed"),
        ("type: tls", "type: kerberos", "authentication of type `kerberos` is not supported"),
        ("type: tls", "type: oauth", "`oauth` needs `tokenEndpointUri` and `clientId`"),
        ("tasksMax: 12", "tasksMax: lots", "`source->dest.tasks.max` is `lots`"),
        ("tasksMax: 12\n        config:", "config:\n          transforms: x", "would change what is delivered"),
        ("topicsPattern: .*", "topicsPattern: 'a['", "is not a regular expression"),
        ("sourceCluster: source", "sourceCluster: sauce", "`clusters` does not name `sauce`"),
        ("tasksMax: 12", "state: paused", "`sourceConnector` is paused or stopped"),
        ("      targetCluster: dest\n", "", "the mirror does not say from where to where"),
        ("      sourceConnector:", "      sauceConnector:", "without `sourceConnector` nothing is copied"),
        (
            "Policy\n      heartbeat",
            "PolicyX\n      heartbeat",
            "`replication.policy.class` differs from line",
        ),
        ("bootstrapServers: dest-service:9093\n", "x: 1\n", "`dest.bootstrap.servers` is missing"),
        ("- alias: dest\n      authentication", "- authentication", "a cluster needs an `alias`"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, secrets: Path, old: str, new: str, says: str) -> None:
    assert old in SEED
    assert says in refused(tmp_path, SEED.replace(old, new, 1) if old else SEED, secrets if old else None)


def test_a_missing_key_is_named_with_its_secret(tmp_path: Path, secrets: Path) -> None:
    (secrets / "west-user" / "password").unlink()
    assert "the secret `west-user` has no readable key `password`" in refused(tmp_path, V1, secrets)
    (secrets / "west-user" / "password").write_text("x")
    assert "no key that matches `*.pem`" in refused(tmp_path, V1.replace("*.crt", "*.pem"), secrets)
    plain = V1.replace("scram-sha-512", "plain").replace("      username: ada\n", "")
    assert "needs a `username`" in refused(tmp_path, plain, secrets)


def test_slips_are_warned_of_with_their_line(tmp_path: Path, secrets: Path) -> None:
    warnings = loaded(tmp_path, V1.replace("groupsPattern", "grupsPattern"), secrets).warnings
    assert "line 20: `grupsPattern` is not known and has no effect; did you mean `groupsPattern`?" in warnings


def test_references_of_strimzi_are_understood(tmp_path: Path, secrets: Path) -> None:
    text = V1.replace('"e1:9092,e2:9092"', '"${secrets:ns/west-user:password}:1"')
    assert loaded(tmp_path, text, secrets).flows[0].source.bootstrap == ("hunter2:1",)
