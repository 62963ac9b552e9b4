"""`isthmus config`: show, check, schema, convert. Nothing gives a secret away, and what is converted says the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from typer.testing import CliRunner, Result

from isthmus.cli.app import app
from isthmus.config.doubts import contradictions
from isthmus.config.load import Loaded, load
from isthmus.config.schema import json_schema
from isthmus.config.written import as_yaml
from isthmus.errors import ConfigError
from isthmus.model import Cluster, Flow, Groups, Growth, Mm2Topics, Naming, Start, Sync, Topics, Tuning

SAMPLES = Path(__file__).parent / "samples"
NAMES = ["mm2.properties", "setenv.sh", "strimzi-v1beta2.yaml", "strimzi-v1.yaml", "whole.yaml"]
ENV = {
    "KAFKA_SOURCE_BROKERS": "hunter2-host:443",
    "KAFKA_TARGET_APIKEY": "hunter2",
    "TASKS": "7",
    "OFF": "false",
    "POLICY": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
}
PLAIN = ("pa${ssword", "srcscrtsrcscrt", "dstscrtdstscrt", "priced appropriately", "hunter2", "KEY source", "KEY dest")


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    for end in ("source", "dest"):
        for name, key in ((f"{end}-user", "user.crt"), (f"{end}-user", "user.key")):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / key).write_text(f"KEY {end}")
        (folder / f"{end}-cluster-cluster-ca-cert").mkdir()
        (folder / f"{end}-cluster-cluster-ca-cert" / "ca.crt").write_text("CA\n")
    (folder / "west-ca").mkdir()
    (folder / "west-ca" / "a.crt").write_text("CA a\n")
    (folder / "west-ca" / "b.crt").write_text("CA b\n")
    (folder / "west-user").mkdir()
    (folder / "west-user" / "password").write_text("hunter2")
    return folder


def asked(*words: str | Path, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, ["config", *map(str, words)], env=ENV if env is None else env)


def told(result: Result) -> str:
    """Whatever the command gave away."""
    return f"{result.output}{result.exception}{getattr(result.exception, 'hint', '')}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("output", ["text", "json"])
def test_show_gives_every_value_and_no_secret(secrets: Path, name: str, output: str) -> None:
    result = asked("show", SAMPLES / name, "--secrets", secrets, "-o", output)
    assert result.exit_code == 0, told(result)
    assert not [secret for secret in PLAIN if secret in told(result)]
    assert f"{name}:" in result.stdout
    assert "default" in result.stdout


def test_show_says_where_each_value_comes_from() -> None:
    lines = asked("show", SAMPLES / "mm2.properties").stdout.splitlines()
    rows = [" ".join(line.split()) for line in lines]
    assert rows[0] == "cluster source"
    assert "bootstrap ${KAFKA_SOURCE_BROKERS} mm2.properties:3" in rows
    assert "ssl.truststore.password *** mm2.properties:5" in rows
    assert any(row.startswith("sasl.jaas.config org.apache") and "${KAFKA_TARGET_APIKEY}" in row for row in rows)
    assert "topics orders, inv\\..* mm2.properties:12" in rows
    assert "lanes ${TASKS} mm2.properties:16" in rows
    assert "replication_factor 2 default of MirrorMaker 2" in rows
    assert "sync.acls_seconds 60.0 default" in rows
    assert "naming.policy ${POLICY} mm2.properties:15" in rows


def test_show_as_json_can_be_read_by_programs() -> None:
    data = json.loads(asked("show", SAMPLES / "mm2.properties", "-o", "json").stdout)
    assert data["format"] == "properties"
    assert data["flows"]["source->target"]["compression"] == {"value": "zstd", "origin": "mm2.properties:24"}
    assert data["clusters"]["source"]["client.rack"]["value"] == "r1"
    assert set(data["flows"]) == {"source->target", "target->source"}


def test_a_plain_password_beside_a_reference_is_hidden(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    text = (SAMPLES / "mm2.properties").read_text()
    file.write_text(text.replace('"token" password=${KAFKA_TARGET_APIKEY}', '"${TASKS}" password="in-the-open"'))
    for command in (("show", file), ("show", file, "-o", "json"), ("convert", file)):
        result = asked(*command)
        assert result.exit_code == 0
        assert "in-the-open" not in told(result)


def test_check_says_whether_a_file_can_run(tmp_path: Path) -> None:
    assert "fit to run: 2 flows" in asked("check", SAMPLES / "mm2.properties").stdout
    script = tmp_path / "setenv.sh"
    script.write_text((SAMPLES / "setenv.sh").read_text())
    script.chmod(0o600)
    result = asked("check", script)
    assert result.stdout == "fit to run: 1 flow\n"
    assert result.stderr == ""
    bad = tmp_path / "bad.yaml"
    bad.write_text("clusters: {}\n")
    failed = asked("check", bad)
    assert isinstance(failed.exception, ConfigError)
    assert failed.exception.exit_code == 2


def test_check_without_a_file_looks_at_the_environment() -> None:
    env = {
        "KAFKA_CLUSTERS_SOURCE_BOOTSTRAP_SERVERS": "s:1",
        "KAFKA_CLUSTERS_SOURCE_TOPIC": "a",
        "KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS": "d:1",
        "KAFKA_CLUSTERS_DESTINATION_TOPIC": "b",
    }
    assert "fit to run: 1 flow" in asked("check", env=env).stdout
    assert "exact:\n      a: b\n" in asked("convert", env=env).stdout
    assert isinstance(asked("check", env={}).exception, ConfigError)


def test_schema_is_the_one_that_files_are_read_by() -> None:
    assert json.loads(asked("schema").stdout) == json_schema()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_converted_asks_for_the_same(tmp_path: Path, secrets: Path, name: str) -> None:
    before = load(SAMPLES / name, secrets=secrets, environ=ENV)
    out = tmp_path / "flows.yaml"
    result = asked("convert", SAMPLES / name, "--secrets", secrets, "--out", out, "--include-secrets")
    assert result.exit_code == 0, told(result)
    assert load(out, secrets=secrets, environ=ENV).flows == before.flows


@pytest.mark.parametrize("name", NAMES)
def test_plain_secrets_become_variables(tmp_path: Path, secrets: Path, name: str) -> None:
    before = load(SAMPLES / name, secrets=secrets, environ=ENV)
    result = asked("convert", SAMPLES / name, "--secrets", secrets)
    assert not [secret for secret in PLAIN if secret in result.output]
    out = tmp_path / "flows.yaml"
    out.write_text(result.stdout)
    named = [line.split()[2] for line in result.stdout.splitlines() if line.startswith("# Set ")]
    given = {end.alias: end for flow in before.flows for end in (flow.source, flow.target)}
    values = {
        f"{alias}_{key}".replace(".", "_").replace("-", "_").upper(): value
        for alias, end in given.items()
        for key, value in end.settings.items()
    }
    environ = ENV | {name: values[name] for name in named}
    assert load(out, secrets=secrets, environ=environ).flows == before.flows


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    result = asked("convert", SAMPLES / "mm2.properties", "--out", tmp_path / "no" / "file.yaml")
    assert isinstance(result.exception, ConfigError)


def test_a_copy_of_our_yaml_keeps_its_references(tmp_path: Path) -> None:
    file = tmp_path / "whole.yaml"
    shutil.copy(SAMPLES / "whole.yaml", file)
    converted = asked("convert", file).stdout
    assert "${env:KAFKA_SOURCE_BROKERS}" in converted
    assert "lanes: ${TASKS}" in converted


# --- any flow at all ----------------------------------------------------------------------------

WORDS = some.text("abcXYZ019._-", min_size=1, max_size=8)
REGEXES = some.lists(some.sampled_from(["a.*", "b,c", "${x}", "$${y}", r"\Qz\E", "no", "1", "#"]), max_size=3).map(
    tuple
)
TEXTS = some.text(max_size=12)
SECONDS = some.floats(0.001, 1e6, allow_nan=False)
STARTS = some.one_of(
    some.builds(Start, topics=some.sampled_from([".*", "a.*"]), at=some.sampled_from(["earliest", "latest"])),
    some.builds(Start, at=some.just("timestamp"), timestamp_ms=some.integers(0, 4_000_000_000_000)),
    some.builds(Start, at=some.just("offsets"), offsets=some.just(((0, 5), (11, 7)))),
)
NAMINGS = some.one_of(
    some.builds(Naming, policy=some.sampled_from(["default", "identity"]), separator=some.sampled_from([".", "_"])),
    some.builds(Naming, policy=some.just("rename"), suffix=WORDS, prefix=some.sampled_from(["", "1"])),
    some.builds(Naming, policy=some.just("rename"), exact=WORDS.map(lambda word: (("null", word),))),
)
SIDES = some.sampled_from(["source", "target"])
FLOWS = some.builds(
    Flow,
    source=some.builds(
        Cluster,
        alias=some.just("east"),
        bootstrap=some.just(("e:1", "f:2")),
        settings=some.dictionaries(some.sampled_from(["a", "sasl.jaas.config", "null"]), TEXTS),
    ),
    target=some.builds(Cluster, alias=some.just("west"), bootstrap=some.just(("w:1",)), settings=some.just({})),
    topics=some.builds(Topics, include=REGEXES, exclude=REGEXES),
    groups=some.builds(Groups, include=REGEXES, exclude=REGEXES),
    naming=NAMINGS,
    lanes=some.integers(1, 9),
    growth=some.builds(Growth, least=some.integers(0, 9), after_seconds=SECONDS),
    on_gap=some.sampled_from(["stop", "skip"]),
    on_too_large=some.sampled_from(["stop", "dead_letter"]),
    sync=some.builds(Sync, configs=some.booleans(), acls_seconds=SECONDS, config_exclude=REGEXES, defaults_from=SIDES),
    mm2_topics=some.builds(Mm2Topics, checkpoints=some.booleans(), offset_syncs_on=SIDES),
    starts=some.lists(STARTS, max_size=3).map(tuple),
    compression=some.sampled_from(["", "none", "zstd"]),
    throttle=some.integers(0, 10**12),
    cut_from=some.sampled_from([(), ("west",), ("west", "far")]),
    tuning=some.builds(Tuning, refresh_seconds=SECONDS),
).filter(lambda flow: not any(contradictions(flow)))


@settings(max_examples=60, deadline=None)
@given(flow=FLOWS)
def test_any_flow_survives_being_written_down(tmp_path_factory: pytest.TempPathFactory, flow: Flow) -> None:
    out = tmp_path_factory.mktemp("written") / "flows.yaml"
    out.write_text(as_yaml(Loaded((flow,), (), Path("x")), include_secrets=True), encoding="utf-8")
    assert load(out, environ={}).flows == (flow,)
