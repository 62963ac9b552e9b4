"""Torture on somebody's clusters: what would be created, how clients that are not ours log in, what is refused."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from typer.testing import CliRunner

from isthmus.cli.app import app
from isthmus.config.load import load
from isthmus.config.security import read_security
from isthmus.errors import ConfigError, MachineError, SourceError
from isthmus.lab.identities import Authority
from isthmus.lab.network import Door
from isthmus.mm2.filters import choose
from isthmus.model import REGISTER, Cluster, Flow, Naming, Topics, Transform, Tuning
from isthmus.torture import clients, staging, sweeping
from isthmus.torture.clients import count_brokers, settings_of
from isthmus.torture.kinds import outside_kinds
from isthmus.torture.plan import Plan, as_json, plan_for
from isthmus.torture.stage import EAST, WEST

HUSH = "hunter2 ${env:NOT} \"quoted\" 'so' \\ it:"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def cluster(alias: str = "prod-east", **settings: str) -> Cluster:
    """Names have `_` for `.`."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    reading = read_security(named)
    assert not reading.wrong, reading.wrong
    return Cluster(alias=alias, bootstrap=("b1:9092", "b2:9092"), settings=named, security=reading.security)


def flow(**changes: Any) -> Flow:
    return replace(Flow(source=cluster(), target=cluster("prod-west")), **changes)


def login(module: str = SCRAM, mechanism: str = "SCRAM-SHA-256", more: str = "") -> dict[str, str]:
    hush = HUSH.replace("\\", "\\\\").replace('"', '\\"')
    jaas = f'{module} username="u" password="{hush}"{more};'
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, "sasl_jaas_config": jaas}


# --- the plan ----------------------------------------------------------------------------------


def created(plan: Plan) -> list[str]:
    return [*plan.created(EAST), *plan.created(WEST)]


@pytest.mark.parametrize(
    "naming",
    [
        Naming(),
        Naming(separator="_"),
        Naming(separator="t"),
        Naming(policy="identity"),
        Naming(policy="rename", prefix="x-", exact=(("a", "b"),)),
    ],
    ids=str,
)
def test_every_topic_that_is_created_is_torture_s_own_whatever_the_flow_asks_for(naming: Naming) -> None:
    plan = plan_for(flow(naming=naming, cut_from=("south",), on_too_large="dead_letter"), 3, "0a1b2c3d")
    assert all(plan.is_ours(name) for name in created(plan))
    assert len(set(created(plan))) == len(created(plan)) >= 6
    assert not {REGISTER, "heartbeats"} & set(created(plan))
    assert plan.flow.name != plan.asked.name
    assert plan.flow.transactional_id(0, 0) != plan.asked.transactional_id(0, 0)


def test_topics_are_left_out_by_flows_of_all_topics_but_not_by_torture_s_own() -> None:
    plan = plan_for(flow(), 1)
    there = [*plan.topics, *map(plan.copy, plan.topics), "orders"]
    assert choose(flow(), there) == ["orders"]
    assert sorted(choose(plan.flow, there)) == sorted(plan.topics)


def test_two_plans_know_only_their_own_topics() -> None:
    one, other = plan_for(flow(), 1), plan_for(flow(), 1)
    assert not any(one.is_ours(name) for name in created(other))
    assert not one.is_ours("orders")


def test_replicas_are_as_many_as_brokers_can_hold_and_three_at_the_most() -> None:
    assert [plan_for(flow(), brokers).factor for brokers in (1, 2, 3, 12)] == [1, 2, 3, 3]


def test_what_would_change_records_or_hold_them_up_is_not_taken_over_and_times_suit_a_storm() -> None:
    tuning = Tuning(transaction_timeout_ms=60_000, commit_interval_ms=30_000, fetch_bytes=12345)
    asked = flow(transform=Transform(sql="select 1"), throttle=10, tuning=tuning, topics=Topics(include=("orders",)))
    made = plan_for(asked, 1).flow
    assert (made.transform, made.throttle, made.starts) == (None, 0, ())
    assert made.tuning.commit_interval_ms < made.tuning.transaction_timeout_ms == 10_000
    assert made.tuning.fetch_bytes == 12345
    assert made.sync.configs
    assert not made.sync.acls


def test_the_plan_as_json_names_the_owner_s_clusters_and_all_that_is_created_there() -> None:
    plan = plan_for(flow(), 1)
    found = json.loads(json.dumps(as_json(plan, ["worker killed"])))
    assert found["source"] == {
        "cluster": "prod-east",
        "bootstrap": ["b1:9092", "b2:9092"],
        "topics": plan.created(EAST),
    }
    assert found["target"]["topics"] == plan.created(WEST)
    assert found["kinds"] == ["worker killed"]


# --- the flow's file ---------------------------------------------------------------------------


def staged(asked: Flow, folder: Path) -> staging.Staging:
    made = staging.Staging(plan_for(asked, 1), {EAST: "b1:9092", WEST: "b1:9092"}, folder, lambda _: None)
    made._doors = {EAST: Door(1111), WEST: Door(2222)}
    return made


def test_the_file_is_closed_to_others_and_gives_the_planned_flow_through_doors(tmp_path: Path) -> None:
    asked = flow(source=cluster(**login()), tuning=Tuning(fetch_bytes=12345))
    made = staged(asked, tmp_path)
    path = made.flow_file()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = load(path)
    (found,) = loaded.flows
    assert loaded.exposed == ()
    assert found.source.security.login == asked.source.security.login
    ways = [end.security.tunnel for end in (found.source, found.target)]
    assert [str(way) for way in ways] == ["127.0.0.1:1111", "127.0.0.1:2222"]
    planned = plan_for(asked, 1, found.source.alias.removeprefix("torture")).flow
    assert replace(found, source=planned.source, target=planned.target) == planned


def test_a_tunnel_of_the_file_keeps_its_secret_and_is_dialled_through_the_door(tmp_path: Path) -> None:
    far = cluster(tunnel_dial="exit.example:7443", tunnel_secret="one two three four five six seven")
    made = staged(flow(source=far, target=far), tmp_path)
    made._dig()  # nothing of ours to start: both lead to tunnels that are there
    assert [(door.host, door.target) for door in made._doors.values()] == 2 * [("exit.example", 7443)]
    (found,) = load(made.flow_file()).flows
    way, given = found.source.security.tunnel, far.security.tunnel
    assert way is not None
    assert given is not None
    assert str(way) == "127.0.0.1:1111"
    assert way.secrets == given.secrets


def test_nobody_lays_hands_on_brokers_or_logins_that_are_somebody_s(tmp_path: Path) -> None:
    made = staged(flow(), tmp_path)
    with pytest.raises(MachineError, match="somebody"):
        made[EAST]
    with pytest.raises(MachineError, match="somebody"):
        made.set_password(WEST)


# --- clients -----------------------------------------------------------------------------------


def test_a_cluster_in_clear_needs_its_brokers_only(tmp_path: Path) -> None:
    found = settings_of(cluster(), tmp_path)
    assert found == {
        "bootstrap.servers": "b1:9092,b2:9092",
        "client.id": "isthmus-torture",
        "security.protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize(("module", "mechanism"), [(PLAIN, "PLAIN"), (SCRAM, "SCRAM-SHA-512")])
def test_a_login_by_password_is_said_in_librdkafka_s_words(module: str, mechanism: str, tmp_path: Path) -> None:
    found = settings_of(cluster(**login(module, mechanism)), tmp_path)
    assert found["security.protocol"] == "SASL_PLAINTEXT"
    assert [found[f"sasl.{name}"] for name in ("mechanism", "username", "password")] == [mechanism, "u", HUSH]


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_stores_become_pem_and_the_key_stays_in_memory(kind: str, tmp_path: Path) -> None:
    authority = Authority()
    own, files = authority.issue("isthmus"), tmp_path / "stores"
    files.mkdir()
    settings = {"security_protocol": "SSL", "ssl_keystore_type": kind, "ssl_truststore_type": "PEM"}
    if kind == "PEM":
        (files / "own").write_text(own.key_pem("hush") + own.chain_pem())
        settings |= {"ssl_key_password": "hush"}
    else:
        own.pkcs12(files / "own", "hush")
        settings |= {"ssl_keystore_password": "hush"}
    settings |= {"ssl_keystore_location": str(files / "own"), "ssl_truststore_certificates": authority.pem()}
    (tmp_path / "made").mkdir()
    found = settings_of(cluster(**settings), tmp_path / "made")
    assert found["ssl.ca.pem"] == authority.pem()
    assert found["ssl.key.pem"] == own.key_pem()
    assert found["ssl.endpoint.identification.algorithm"] == "https"
    written = [path.read_text() for path in (tmp_path / "made").iterdir()]
    assert written == [own.chain_pem()]
    assert Path(found["ssl.certificate.location"]).read_text() == own.chain_pem()


def test_names_of_brokers_are_verified_as_the_file_says(tmp_path: Path) -> None:
    found = settings_of(cluster(security_protocol="SSL", ssl_endpoint_identification_algorithm=""), tmp_path)
    assert found["ssl.endpoint.identification.algorithm"] == "none"
    assert "ssl.ca.pem" not in found  # what this system trusts


@pytest.mark.parametrize("kind", ["token", "OAUTHBEARER"])
def test_a_login_that_librdkafka_cannot_do_is_refused_with_what_to_do(kind: str, tmp_path: Path) -> None:
    far = cluster(**login(more=' tokenauth="true"'))
    if kind == "OAUTHBEARER":
        bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        far = cluster(
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url="https://id.example/token",
            sasl_jaas_config=f'{bearer} clientId="c" clientSecret="hunter2";',
        )
    with pytest.raises(ConfigError, match=kind) as refused:
        settings_of(far, tmp_path)
    assert refused.value.code == "TORTURE_CLIENT"
    assert "SCRAM" in refused.value.hint
    assert "hunter2" not in str(refused.value) + refused.value.hint


@pytest.mark.parametrize("tunnelled", [False, True])
def test_brokers_that_librdkafka_does_not_reach_are_told_with_what_to_do(
    tunnelled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_ANSWER_S", 0.5)
    way = {"tunnel_dial": "x:7443", "tunnel_secret": "one two three four five six seven"} if tunnelled else {}
    far = replace(cluster(**way), bootstrap=("127.0.0.1:1",))
    with pytest.raises(SourceError, match="do not reach the brokers") as refused:
        count_brokers(far, settings_of(far, tmp_path), SourceError)
    assert ("knows no tunnel" in refused.value.hint) == tunnelled
    assert "prod-east" in refused.value.where


# --- the end -----------------------------------------------------------------------------------


class Brokers:
    """A cluster as `sweep` sees it: topics, and an error code for those that it does not let go."""

    def __init__(self, *topics: str, refuses: int = 0) -> None:
        self.topics, self._refuses = list(topics), refuses

    def list_topics(self, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics=dict.fromkeys(self.topics))

    def delete_topics(self, names: list[str], request_timeout: float) -> dict[str, Future[None]]:
        return {name: self._delete(name) for name in names}

    def _delete(self, name: str) -> Future[None]:
        asked: Future[None] = Future()
        if self._refuses:
            asked.set_exception(KafkaException(KafkaError(self._refuses)))
        else:
            self.topics.remove(name)
            asked.set_result(None)
        return asked


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> Callable[[Brokers], dict[str, str]]:
    def sweep(brokers: Brokers) -> dict[str, str]:
        monkeypatch.setattr("isthmus.lab.admin.client", lambda _: brokers)
        monkeypatch.setattr(sweeping, "_LOOK_S", 0.0)
        return sweeping.sweep("b:1", lambda name: "torture" in name, ["torture-expected"])

    return sweep


def test_all_of_torture_is_removed_and_nothing_else(swept: Callable[[Brokers], dict[str, str]]) -> None:
    brokers = Brokers("orders", "torture-a", "b.torture-a")
    assert swept(brokers) == {}
    assert brokers.topics == ["orders"]


def test_what_cannot_be_removed_is_told_at_once_with_its_reason(swept: Callable[[Brokers], dict[str, str]]) -> None:
    brokers = Brokers("orders", "torture-a", refuses=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert list(swept(brokers)) == ["torture-a"]
    assert all("uthoriz" in why for why in swept(brokers).values())


# --- the command -------------------------------------------------------------------------------


def run(*words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["torture", *words])
    return ended.exit_code, f"{ended.output}{ended.exception or ''}"


def test_faults_on_clusters_of_a_file_need_no_hand_on_brokers() -> None:
    code, named = run("--list", "flow.yaml")
    assert code == 0
    assert named.splitlines() == [kind.name for kind in outside_kinds()]
    assert not any(word in named for word in ("broker", "leaders", "quota", "right", "password", "coordinator"))
    assert "source: cut off" in named
    assert "program killed" in named


def test_options_of_the_lab_and_of_a_file_do_not_mix() -> None:
    assert "--tunnel is for the lab" in run("flow.yaml", "--tunnel", "--list")[1]
    for option in (["--yes"], ["--dry-run"], ["--flow", "a->b"]):
        assert "need a FILE" in run(*option, "--list")[1]


def test_without_a_confirmation_nothing_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.torture.clients.count_brokers", lambda *_: 3)
    file = tmp_path / "flow.yaml"
    clusters = {name: {"bootstrap": f"{name}:9092"} for name in ("prod", "dr")}
    file.write_text(json.dumps({"clusters": clusters, "flows": [{"from": "prod", "to": "dr"}]}))
    code, told = run(str(file))
    assert code != 0
    assert "not confirmed" in told
    code, told = run(str(file), "--dry-run", "-o", "json", "--only", "killed")
    assert code == 0
    assert json.loads(told)["source"]["cluster"] == "prod"
    code, told = run(str(file), "--dry-run", "--flow", "prod->dr")
    assert code == 0
    assert "isthmus-torture-" in told
