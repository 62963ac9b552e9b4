"""`${...}` in values: where it leads, and that what it gives is never shown."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from isthmus.config.client import read_client
from isthmus.config.load import Loaded, load
from isthmus.config.schema import json_schema
from isthmus.config.substitute import Missing, Providers, Resolved, shown
from isthmus.errors import ConfigError

ENV = {"HOST": "east-1", "N": "2", "PASSWORD": "hunter2", "YES": "true", "BAD": "hunter2["}
YAML = """\
clusters:
  east: {bootstrap: "${HOST}:9092"}
  west:
    bootstrap: w:9092
    properties: {sasl.jaas.config: 'x password="${env:PASSWORD}";'}
flows:
  - from: east
    to: west
"""
MM2 = """\
clusters = east, west
east.bootstrap.servers = ${HOST}:9092
west.bootstrap.servers = w:9092
west.sasl.jaas.config = x password="${env:PASSWORD}";
east->west.enabled = ${YES}
"""


@pytest.fixture
def providers(tmp_path: Path) -> Providers:
    (tmp_path / "my.properties").write_text("user = ada\npass.word: hunter2\n")
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "password").write_text("hunter2\n")
    return Providers(tmp_path, tmp_path, ENV)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain $ {x} }", "plain $ {x} }"),
        ("${HOST}", "east-1"),
        ("${env:HOST}", "east-1"),
        ("${HOST}:${N}", "east-1:2"),
        ("${file:my.properties:user}", "ada"),
        ("${file:my.properties:pass.word}!", "hunter2!"),
        ("${dir:db:password}", "hunter2"),
        ("${secrets:db:password}", "hunter2"),
        ("${secrets:some-namespace/db:password}", "hunter2"),
        ("${strimzienv:HOST}", "east-1"),
        ("$${HOST}", "${HOST}"),
        ("a$${HOST}${HOST}", "a${HOST}east-1"),
        ("x$", "x$"),
        ("${unclosed", "${unclosed"),
    ],
)
def test_a_reference_is_replaced_wherever_it_stands(providers: Providers, text: str, value: str) -> None:
    assert providers.resolve(text) == value


def test_a_value_remembers_its_reference(providers: Providers) -> None:
    value = providers.resolve("${HOST}:9092")
    assert isinstance(value, Resolved)
    assert shown(value) == "${HOST}:9092"
    assert not isinstance(providers.resolve("$${HOST}"), Resolved)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${NOWHERE}", "the environment has no variable `NOWHERE`"),
        ("${env:NOWHERE}", "the environment has no variable `NOWHERE`"),
        ("${file:other.properties:user}", "the file `other.properties` cannot be read"),
        ("${file:my.properties:usr}", "has no property `usr`"),
        ("${file:my.properties}", "is not complete"),
        ("${dir:db:nothing}", "the folder `db` has no readable file `nothing`"),
        ("${secrets:db:..}", "has no readable key"),
        ("${vault:db:password}", "there is no provider `vault`"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told(providers: Providers, text: str, says: str) -> None:
    with pytest.raises(Missing) as caught:
        providers.resolve(text)
    assert says in caught.value.text
    assert "hunter2" not in caught.value.text + caught.value.hint


def loaded(tmp_path: Path, name: str, text: str) -> Loaded:
    file = tmp_path / name
    file.write_text(text)
    return load(file, environ=ENV)


def refused(tmp_path: Path, name: str, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, name, text)
    return f"{caught.value} [{caught.value.hint}]"


@pytest.mark.parametrize(("name", "text"), [("flows.yaml", YAML), ("mm2.properties", MM2)])
def test_every_format_takes_references(tmp_path: Path, name: str, text: str) -> None:
    result = loaded(tmp_path, name, text)
    (flow,) = result.flows
    assert flow.source.bootstrap == ("east-1:9092",)
    assert flow.target.settings == {"sasl.jaas.config": 'x password="hunter2";'}
    assert result.places["clusters.east.bootstrap"].reference == "${HOST}:9092"
    assert result.places["clusters.west.properties.sasl.jaas.config"].reference == 'x password="${env:PASSWORD}";'
    assert pickle.loads(pickle.dumps(flow)) == flow  # orders travel to executors


def test_a_reference_may_stand_for_a_number_or_a_truth_in_yaml(tmp_path: Path) -> None:
    added = "    lanes: ${N}\n    sync: {acls: '${YES}', acls_seconds: '${N}'}\n    topics: ['${HOST}', b]\n"
    (flow,) = loaded(tmp_path, "flows.yaml", YAML + added).flows
    assert (flow.lanes, flow.sync.acls, flow.sync.acls_seconds) == (2, True, 2.0)
    assert flow.topics.include == ("east-1", "b")
    assert {type(topic) for topic in flow.topics.include} == {str}


def test_the_schema_takes_a_reference_wherever_the_loader_does() -> None:
    schema = json_schema()["$defs"]
    flow, tuning = schema["FlowSpec"]["properties"], schema["TuningSpec"]["properties"]
    some = [flow[name] for name in ("lanes", "topics", "on_gap", "replication_factor", "naming")]
    for field in (*some, *tuning.values()):
        assert {"$ref": "#/$defs/Reference"} in field["anyOf"], field
    pattern = schema["Reference"]["pattern"]
    assert re.search(pattern, "${env:N}")
    assert not re.search(pattern, "many")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("flows.yaml", YAML + "    lanes: ${NOPE}\n", "`flows[0].lanes`: the environment has no variable `NOPE`"),
        ("mm2.properties", MM2 + "tasks.max = ${NOPE}\n", "`tasks.max`: the environment has no variable `NOPE`"),
    ],
)
def test_what_is_missing_is_told_with_its_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    told = refused(tmp_path, name, text)
    assert says in told
    assert f"{name}:{len(text.splitlines())}" in told


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(
            ("flows.yaml", YAML + f"    {line}\n")
            for line in (
                *("lanes: ${PASSWORD}", "topics: ['${BAD}']", "topics: '${BAD}'", "naming: ${PASSWORD}"),
                *("start: ${PASSWORD}", "throttle: ${PASSWORD}", "compression: ${PASSWORD}", "on_gap: ${PASSWORD}"),
                *("sync: {acls: '${PASSWORD}'}", "replication_factor: ${PASSWORD}", "naming: {suffix: '${BAD}'}"),
            )
        ),
        ("flows.yaml", YAML.replace("to: west", "to: ${PASSWORD}")),
        ("flows.yaml", YAML.replace("${HOST}:9092", "${PASSWORD}")),
        *(
            ("mm2.properties", MM2 + f"{line}\n")
            for line in (
                *("tasks.max=${PASSWORD}", "topics=${BAD}", "groups=${BAD}", "west.bootstrap.servers=${PASSWORD}"),
                *("replication.policy.class=${PASSWORD}", "replication.policy.separator=${BAD}"),
                *("use.defaults.from=${PASSWORD}", "producer.compression.type=${PASSWORD}", "transforms=${PASSWORD}"),
                *("sync.topic.acls.enabled=${PASSWORD}", "consumer.auto.offset.reset=${PASSWORD}"),
            )
        ),
    ],
)
def test_what_a_reference_gave_is_never_told(tmp_path: Path, name: str, text: str) -> None:
    told = refused(tmp_path, name, text)
    assert "hunter2" not in told
    assert "${" in told


def test_connects_declarations_of_providers_are_understood(tmp_path: Path) -> None:
    declared = (
        "config.providers = mine, files\n"
        "config.providers.mine.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "config.providers.files.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
    )
    (tmp_path / "f.properties").write_text("lanes = 3\n")
    added = "topics = ${mine:HOST}\ntasks.max = ${files:f.properties:lanes}\n"
    result = loaded(tmp_path, "mm2.properties", declared + MM2 + added)
    assert result.flows[0].topics.include == ("east-1",)
    assert result.flows[0].lanes == 3
    assert result.warnings == ("cluster west: `sasl.jaas.config` has no effect: `security.protocol` is PLAINTEXT",)
    unknown = "config.providers = v\nconfig.providers.v.class = com.acme.Vault\n"
    assert "mm2.properties:2" in refused(tmp_path, "mm2.properties", unknown + MM2)


def test_the_properties_file_of_a_client_takes_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers = a:1\nsasl.jaas.config = ${PASSWORD}\n")
    assert read_client(file)[0].settings == {"sasl.jaas.config": "hunter2"}
    for bad in ("bootstrap.servers = ${PASSWORD}\n", "bootstrap.servers = ${NOWHERE_AT_ALL}\n"):
        file.write_text(bad)
        with pytest.raises(ConfigError) as caught:
            read_client(file)
        assert "hunter2" not in f"{caught.value}{caught.value.hint}"
