"""A debug bundle holds what helps, and no secret: not of any format, not when something goes wrong."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from isthmus.cli.app import app
from isthmus.config.load import load
from isthmus.config.scrub import scrubbed, secrets_of

SAMPLES = Path(__file__).parent / "samples"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvgIBADANBgkqhkiG9w0BAQEFAASC\nBKgwggSkAgEAAoIBAQC7\n-----END PRIVATE KEY-----\n"
CLUSTERS = """
clusters:
  scram:
    bootstrap: "127.0.0.1:1"
    properties:
      security.protocol: SASL_PLAINTEXT
      sasl.mechanism: SCRAM-SHA-512
      sasl.jaas.config: >-
        org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="scram-\\"pw\\"-1";
  oauth:
    bootstrap: "127.0.0.1:1"
    properties:
      security.protocol: SASL_PLAINTEXT
      sasl.mechanism: OAUTHBEARER
      sasl.oauthbearer.token.endpoint.url: http://127.0.0.1:1/token
      sasl.oauthbearer.client.credentials.client.id: isthmus
      sasl.oauthbearer.client.credentials.client.secret: oauth-secret-2
  plain:
    bootstrap: "127.0.0.1:1"
    properties:
      security.protocol: SASL_PLAINTEXT
      sasl.mechanism: PLAIN
      sasl.jaas.config: >-
        org.apache.kafka.common.security.plain.PlainLoginModule required
        username="u" password="${file:passwords:plain}";
  tunnelled:
    bootstrap: "127.0.0.1:1"
    tunnel: {dial: "127.0.0.1:1", secret: "${file:passwords:tunnel}"}
flows:
  - {from: scram, to: oauth, topics: [t]}
  - {from: plain, to: tunnelled, topics: [t]}
"""
SECRETS = ('scram-"pw"-1', r"scram-\"pw\"-1", "oauth-secret-2", "from-a-file-3", "TUNNELSECRET4" * 4)


def bundled(*words: object) -> Result:
    return CliRunner().invoke(app, ["bundle", *map(str, words)])


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        return {Path(each.name).name: getattr(archive.extractfile(each), "read", bytes)() for each in files}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "passwords").write_text(f"plain=from-a-file-3\ntunnel={'TUNNELSECRET4' * 4}\n")
    found = tmp_path / "flow.yaml"
    found.write_text(CLUSTERS)
    for path in (found, tmp_path / "passwords"):
        path.chmod(0o600)
    return found


def test_no_secret_is_in_any_byte_also_when_clusters_are_down(file: Path, tmp_path: Path) -> None:
    kept = tmp_path / "b.tar.gz"
    told = bundled(file, "--to", kept, "-o", "json")
    assert told.exit_code == 0, told.output
    found = members(kept)
    assert {"contents.json", "config.json", "doctor.json", "versions.json", "spark.json"} < set(found)
    assert {"status-scram-to-oauth.json", "control-plain-to-tunnelled.json"} < set(found)
    everything = b"\n".join(found.values()) + told.output.encode()
    for secret in SECRETS:
        for spelled in (secret, json.dumps(secret)[1:-1]):
            assert spelled.encode() not in everything
    assert b"127.0.0.1:1" in found["config.json"]
    missing = {part["name"] for part in json.loads(told.output)["parts"] if part["error"]}
    assert {"status-scram-to-oauth.json", "plan-plain-to-tunnelled.json"} <= missing
    assert json.loads(found["doctor.json"])["outcome"] == "fail"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_file_that_is_there_is_kept(file: Path, tmp_path: Path) -> None:
    kept = tmp_path / "b.tar.gz"
    kept.write_text("mine")
    file.write_text("flows: 1")
    told = bundled(file, "--to", kept)
    assert "there is such a file already" in str(told.exception)
    assert kept.read_text() == "mine"


def test_what_cannot_be_loaded_is_told_in_the_bundle(file: Path, tmp_path: Path) -> None:
    file.write_text("flows: 1")
    assert bundled(file, "--to", tmp_path / "b.tar.gz").exit_code == 0
    assert "flow.yaml" in json.loads(members(tmp_path / "b.tar.gz")["config.json"])["error"]


def test_secrets_that_others_may_read_are_not_used(file: Path, tmp_path: Path) -> None:
    (tmp_path / "passwords").chmod(0o644)
    assert bundled(file, "--to", tmp_path / "b.tar.gz").exit_code == 0
    assert "chmod go=" in json.loads(members(tmp_path / "b.tar.gz")["clusters.json"])["error"]


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("mm2.properties", ("pa${ssword", "api-key-5")),
        ("setenv.sh", ("srcscrtsrcscrt", "dstscrtdstscrt")),
        ("whole.yaml", ("srcscrtsrcscrt", "api-key-5")),
        ("strimzi-v1.yaml", ("of-a-folder-6",)),
    ],
)
def test_secrets_of_every_format_are_known(name: str, hidden: tuple[str, ...], tmp_path: Path) -> None:
    for key, text in (("west-ca/a.crt", "CA"), ("west-user/password", "of-a-folder-6")):
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).write_text(text)
    environ = {"KAFKA_SOURCE_BROKERS": "h:443", "KAFKA_TARGET_APIKEY": "api-key-5", "TASKS": "7", "OFF": "false"}
    environ["POLICY"] = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    found = secrets_of(load(SAMPLES / name, secrets=tmp_path, environ=environ).flows)
    for secret in hidden:
        assert scrubbed([f"refused: {secret}!"], found) == ["refused: ***!"]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("the key is secret-1.", "the key is ***."),
        ({"a": ["secret-1", 5, None], "secret-1": True}, {"a": ["***", 5, None], "***": True}),
        ("secret-12", "***"),
    ],
)
def test_secrets_are_taken_out_wherever_they_stand(value: Any, kept: Any) -> None:
    assert scrubbed(value, ("secret-12", "secret-1")) == kept


def test_a_key_is_not_found_line_by_line_either(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    file = tmp_path / "flow.yaml"
    file.write_text(
        "clusters:\n  a:\n    bootstrap: 'a:1'\n    properties:\n      security.protocol: SSL\n"
        "      ssl.keystore.type: PEM\n      ssl.keystore.certificate.chain: CERT\n"
        "      ssl.keystore.key: ${dir:.:key}\n  b: {bootstrap: 'b:1'}\nflows: [{from: a, to: b, topics: [t]}]\n"
    )
    hidden = secrets_of(load(file).flows)
    for line in KEY.splitlines()[1:3]:
        assert scrubbed(f"refused: {line}", hidden) == "refused: ***"
