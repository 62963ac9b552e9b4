"""MirrorMaker 2's properties: what they yield, what is warned of, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.config.load import Loaded, load
from isthmus.errors import ConfigError
from isthmus.model import Groups, Mm2Topics, Naming, Start, Sync, Topics, Tuning
from isthmus.security import Login, Secret, Security, Tls

BASE = """\
clusters = east, west
east.bootstrap.servers = e1:9092,e2:9092
west.bootstrap.servers = w:9092
east->west.enabled = true
"""


def loaded(tmp_path: Path, added: str = "", base: str = BASE) -> Loaded:
    file = tmp_path / "mm2.properties"
    file.write_text(base + added)
    return load(file)


def refused(tmp_path: Path, added: str, base: str = BASE) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, added, base)
    line = caught.value.where.removeprefix(str(tmp_path / "mm2.properties"))
    return f"{line} {caught.value.message} [{caught.value.hint}]"


def test_a_short_file_takes_mirrormakers_defaults(tmp_path: Path) -> None:
    result = loaded(tmp_path)
    (flow,) = result.flows
    assert flow.name == "east->west"
    assert flow.source.bootstrap == ("e1:9092", "e2:9092")
    assert (flow.topics, flow.naming, flow.tuning, flow.lanes) == (Topics(), Naming(), Tuning(), 1)
    assert (flow.replication_factor, flow.internal_replication_factor) == (2, 3)
    assert result.warnings == ()


def test_a_flow_is_off_unless_it_is_enabled(tmp_path: Path) -> None:
    both = loaded(tmp_path, "west->east.enabled = TRUE\n").flows
    assert [flow.name for flow in both] == ["east->west", "west->east"]
    assert len(loaded(tmp_path, "west->east.enabled = false\n").flows) == 1


def test_the_nearest_level_wins(tmp_path: Path) -> None:
    def factor(added: str) -> int:
        return loaded(tmp_path, added).flows[0].replication_factor

    top, source, target = (
        "replication.factor=4\n",
        "east.replication.factor=5\n",
        "west.replication.factor=6\n",
    )
    assert factor(top) == 4
    assert factor(source + top) == 5
    assert factor(target + source + top) == 6
    assert factor("east->west.replication.factor=7\n" + target + top) == 7


def test_everything_used_reaches_the_flow(tmp_path: Path) -> None:
    added = r"""
topics = orders, inv\\..*
east->west.topics.exclude = x, y
tasks.max = 4
replication.factor = 3
west.offset.storage.replication.factor = 1
replication.policy.separator = _
refresh.topics.interval.seconds = 30
"""
    result = loaded(tmp_path, added)
    (flow,) = result.flows
    assert flow.topics == Topics(include=("orders", r"inv\..*"), exclude=("x", "y"))
    assert (flow.lanes, flow.replication_factor, flow.internal_replication_factor) == (4, 3, 1)
    assert (flow.first_lanes, flow.grows) == (1, True), "tasks.max is the most that there may be"
    assert flow.naming == Naming(separator="_")
    assert flow.tuning == Tuning(refresh_seconds=30.0)
    assert result.warnings == ()


def test_older_spellings_still_work(tmp_path: Path) -> None:
    (flow,) = loaded(tmp_path, "topics.whitelist = a\ntopics.blacklist = b\n").flows
    assert flow.topics == Topics(include=("a",), exclude=("b",))
    (flow,) = loaded(tmp_path, "topics.blacklist = b\ntopics.exclude = c\n").flows
    assert flow.topics.exclude == ("c",)


def test_a_blank_topic_list_is_kept_blank(tmp_path: Path) -> None:
    assert loaded(tmp_path, "topics =\n").flows[0].topics.include == ()


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy",
    ],
)
def test_the_identity_policy_is_known_by_its_class(tmp_path: Path, name: str) -> None:
    assert loaded(tmp_path, f"replication.policy.class={name}\n").flows[0].naming.policy == "identity"


def test_security_settings_reach_their_cluster(tmp_path: Path) -> None:
    jaas = 'PlainLoginModule required username="u" password="hunter2";'
    login = f"west.security.protocol=SASL_SSL\nwest.sasl.mechanism=PLAIN\nwest.sasl.jaas.config={jaas}\n"
    result = loaded(tmp_path, f"security.protocol=SSL\neast.ssl.protocol=TLSv1.2\n{login}")
    (flow,) = result.flows
    assert flow.source.settings == {"security.protocol": "SSL", "ssl.protocol": "TLSv1.2"}
    assert flow.target.settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
    }
    assert flow.source.security == Security(tls=Tls(highest="TLSv1.2"))
    assert flow.target.security == Security(
        tls=Tls(), login=Login(mechanism="PLAIN", user="u", password=Secret("hunter2"))
    )
    assert "hunter2" not in repr(flow)
    assert result.warnings == ()


def test_javas_escapes_continuations_and_separators_are_read(tmp_path: Path) -> None:
    base = (
        "! a comment\r\nclusters : \\\r\n   east,\\\r\n   west\r\n\r\neast.bootstrap.servers e\\u003a9092\r\n"
        "west.bootstrap.servers=PLAINTEXT://w:9092\r\neast->west.enabled=true\r\ntasks.max=x\r\n"
    )
    assert refused(tmp_path, "", base).startswith(":9 `tasks.max` is `x`")
    (flow,) = loaded(tmp_path, "", base.replace("max=x", "max=2")).flows
    assert flow.source.bootstrap == ("e:9092",)
    assert flow.target.bootstrap == ("w:9092",)


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("refresh.topics.enabled = true\n", "line 5: `refresh.topics.enabled` is known but has no effect: new topics"),
        ("heartbeats.topic.replication.factor=2\noffset.storage.replication.factor=1\n", "one replication factor, 1"),
        ("east->west.producer.batch.size=9\n", "`east->west.producer.batch.size` is known but has no effect: batches"),
        (
            "producer.compresion.type=zstd\n",
            "is not known and has no effect; did you mean `producer.compression.type`?",
        ),
        ("east.consumer.isolation.levl=x\n", "did you mean `consumer.isolation.level`?"),
        ("producer.auto.offset.reset=latest\n", "`producer.auto.offset.reset` is known but has no effect"),
        ("target.producer.acks=1\n", "all replicas in sync acknowledge"),
        ("admin.ssl.x=1\n", "`admin.ssl.x` is known but has no effect"),
        (
            "\n# x\nwest.exactly.once.source.support=enabled\n",
            "line 7: `west.exactly.once.source.support` is known",
        ),
        ("east.consumer.fetch.max.bytes=1\n", "`east.consumer.fetch.max.bytes` is known"),
        ("source.cluster.alias=x\n", "`source.cluster.alias` is known"),
        ("taks.max=3\n", "line 5: `taks.max` is not known and has no effect; did you mean `tasks.max`?"),
        ("east->west.topcs=a\n", "did you mean `east->west.topics`?"),
        ("wst.bootstrap.servers=a\n", "did you mean `west.bootstrap.servers`?"),
        ("qqqqqq=1\n", "line 5: `qqqqqq` is not known and has no effect"),
        ("enabled=true\n", "`enabled` has no effect there: flows have it"),
        ("east->west.ssl.x=1\n", "`east->west.ssl.x` has no effect there: clusters have it"),
        ("tasks.max=1\ntasks.max=2\n", "line 6: `tasks.max` replaces the value of line 5"),
    ],
)
def test_what_has_no_effect_is_told_with_its_line(tmp_path: Path, added: str, expected: str) -> None:
    (warning,) = loaded(tmp_path, added).warnings
    assert expected in warning


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("tasks.max=abc\n", ":5 `tasks.max` is `abc` [a number from 1 is meant]"),
        ("tasks.max=0\n", ":5 `tasks.max` is `0`"),
        ("replication.factor=0\n", ":5 `replication.factor` is `0` [-1 (the cluster's default)"),
        ("west->east.enabled=yes\n", ":5 `west->east.enabled` is `yes` [true or false is meant]"),
        (
            "eest->west.enabled=true\n",
            ":5 `eest->west.enabled`: `clusters` does not name `eest` [did you mean",
        ),
        ("west->west.enabled=true\n", ":5 `west->west.enabled`: the flow leads to where it comes from"),
        (
            "replication.policy.class=com.acme.Own\n",
            ":5 `replication.policy.class` is `com.acme.Own` [org.apache",
        ),
        ("replication.policy.separator=/\n", ":5 `replication.policy.separator` is `/`"),
        ("topics=a[\n", ":5 `topics`: `a[` is not a regular expression"),
        ("refresh.topics.interval.seconds=0\n", ":5 `refresh.topics.interval.seconds` is `0`"),
        ("east.bootstrap.servers=nope\n", ":5 `east.bootstrap.servers`: `nope` is not a broker address"),
        ("transforms=a\n", ":5 `transforms` is `a` [that would change what is delivered: records are copied byte"),
        ("east->west.predicates=a\n", ":5 `east->west.predicates` is `a` [that would change"),
        ("topic.filter.class=com.acme.Own\n", "say it with `topics`"),
        ("group.filter.class=com.acme.Own\n", "say it with `groups`"),
        ("config.property.filter.class=com.acme.Own\n", "say it with `config.properties.exclude`"),
        ("value.converter=com.acme.Own\n", ":5 `value.converter` is `com.acme.Own`"),
        ("errors.tolerance=all\n", ":5 `errors.tolerance` is `all`"),
        ("consumer.isolation.level=read_uncommitted\n", "only committed records are ever read"),
        ("east.consumer.isolation.level=read_uncommitted\n", "only committed records are ever read"),
        ("east->west.source.consumer.isolation.level=read_uncommitted\n", "only committed records are ever read"),
        ("producer.compression.type=rar\n", "one of none, gzip, snappy, lz4, zstd is meant"),
        ("consumer.auto.offset.reset=none\n", "earliest or latest is meant"),
        ("groups=a[\n", ":5 `groups`: `a[` is not a regular expression"),
        ("groups=\\\\p{L}\n", "cannot be used where any letter may come"),
        ("use.defaults.from=east\n", "source or target is meant"),
        ("sync.topic.configs.interval.seconds=0\n", "a number from 1 is meant"),
        ("emit.checkpoints.enabled=yes\n", "true or false is meant"),
        ("x=\\u12\n", ":5 `\\u12` is not an escape that Java reads"),
    ],
)
def test_values_that_make_no_sense_are_refused_with_their_line(tmp_path: Path, added: str, expected: str) -> None:
    assert expected in refused(tmp_path, added)


def test_a_file_without_clusters_flows_or_brokers_is_refused(tmp_path: Path) -> None:
    assert "`clusters` names no clusters" in refused(tmp_path, "", "")
    assert "no flow is enabled [add e.g. `a->b.enabled = true`]" in refused(tmp_path, "", "clusters=a,b\n")
    missing = refused(tmp_path, "", BASE.replace("west.bootstrap.servers", "x"))
    assert ":1 `west.bootstrap.servers` is missing" in missing


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    told = refused(tmp_path, "tasks.max=abc\nreplication.factor=x\n")
    assert "2 problems" in told
    assert "mm2.properties:5:" in told
    assert "mm2.properties:6:" in told


def test_the_file_that_kafka_ships_is_read(tmp_path: Path) -> None:
    shipped = """\
clusters = A, B
A.bootstrap.servers = A_host1:9092, A_host2:9092, A_host3:9092
B.bootstrap.servers = B_host1:9092, B_host2:9092, B_host3:9092
A->B.enabled = true
A->B.topics = .*
B->A.enabled = true
B->A.topics = .*
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
"""
    result = loaded(tmp_path, "", shipped)
    assert [flow.name for flow in result.flows] == ["A->B", "B->A"]
    assert {flow.internal_replication_factor for flow in result.flows} == {1}
    assert len(result.warnings) == 2


def test_what_is_kept_in_step_has_mirrormakers_defaults(tmp_path: Path) -> None:
    (flow,) = loaded(tmp_path).flows
    assert flow.sync == Sync(acls=True)
    assert (flow.groups, flow.mm2_topics, flow.starts) == (Groups(), Mm2Topics(), ())
    assert (flow.compression, flow.throttle) == ("", 0)


def test_everything_kept_in_step_reaches_the_flow(tmp_path: Path) -> None:
    added = """
groups = team-.*, x
groups.blacklist = y
sync.topic.configs.enabled = false
sync.topic.configs.interval.seconds = 600
config.properties.exclude = a, b.*
use.defaults.from = source
sync.topic.acls.enabled = false
sync.topic.acls.interval.seconds = 5
emit.heartbeats.enabled = false
emit.heartbeats.interval.seconds = 2
heartbeats.replication.enabled = false
emit.offset-syncs.enabled = false
offset-syncs.topic.location = target
offset.lag.max = 0
emit.checkpoints.enabled = false
emit.checkpoints.interval.seconds = 3
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 4
replication.policy.separator = _
replication.policy.internal.topic.separator.enabled = false
"""
    result = loaded(tmp_path, added)
    (flow,) = result.flows
    assert list(result.warnings) == []
    assert flow.groups == Groups(include=("team-.*", "x"), exclude=("y",))
    assert flow.sync == Sync(
        configs=False,
        configs_seconds=600.0,
        config_exclude=("a", "b.*"),
        defaults_from="source",
        acls=False,
        acls_seconds=5.0,
    )
    assert flow.mm2_topics == Mm2Topics(
        heartbeats=False,
        heartbeat_seconds=2.0,
        carry_heartbeats=False,
        offset_syncs=False,
        offset_syncs_on="target",
        offset_lag_max=0,
        checkpoints=False,
        checkpoint_seconds=3.0,
        group_offsets=True,
        group_offsets_seconds=4.0,
    )
    assert flow.naming == Naming(separator="_", internal_separator=".")


@pytest.mark.parametrize(
    "prefix",
    [
        *("producer.", "target.producer.", "producer.override.", "west.producer."),
        *("east->west.producer.", "east->west.target.producer.", "east->west.producer.override."),
    ],
)
def test_the_producers_codec_is_ours_under_every_name(tmp_path: Path, prefix: str) -> None:
    result = loaded(tmp_path, f"{prefix}compression.type=zstd\n")
    assert result.flows[0].compression == "zstd"
    assert result.warnings == ()


@pytest.mark.parametrize("prefix", ["consumer.", "source.consumer.", "east.consumer.", "east->west.consumer."])
def test_the_consumers_start_and_rack_are_ours_under_every_name(tmp_path: Path, prefix: str) -> None:
    result = loaded(tmp_path, f"{prefix}auto.offset.reset=latest\n{prefix}client.rack=r1\n")
    assert result.flows[0].starts == (Start(at="latest"),)
    assert result.flows[0].source.settings == {"client.rack": "r1"}
    assert result.flows[0].target.settings == {}
    assert result.warnings == ()


def test_the_nearest_client_setting_wins(tmp_path: Path) -> None:
    codecs = "producer.compression.type=gzip\nwest.producer.compression.type=lz4\n"
    assert loaded(tmp_path, codecs).flows[0].compression == "lz4"
    assert loaded(tmp_path, codecs + "east->west.producer.compression.type=none\n").flows[0].compression == "none"


def test_credentials_of_clients_reach_the_cluster_that_they_are_for(tmp_path: Path) -> None:
    added = "east.sasl.jaas.config=a\neast.consumer.sasl.jaas.config=b\nwest.producer.sasl.jaas.config=c\n"
    result = loaded(tmp_path, added)
    assert result.flows[0].source.settings == {"sasl.jaas.config": "b"}
    assert result.flows[0].target.settings == {"sasl.jaas.config": "c"}
    assert result.warnings == tuple(
        f"cluster {alias}: `sasl.jaas.config` has no effect: `security.protocol` is PLAINTEXT"
        for alias in ("east", "west")
    )


def test_what_only_says_what_is_so_anyway_is_no_news(tmp_path: Path) -> None:
    bytes_as_they_are = "org.apache.kafka.connect.converters.ByteArrayConverter"
    added = (
        f"key.converter={bytes_as_they_are}\nvalue.converter={bytes_as_they_are}\nerrors.tolerance=none\n"
        "topic.filter.class=org.apache.kafka.connect.mirror.DefaultTopicFilter\n"
        "source.consumer.isolation.level=read_committed\ntransforms=\n"
    )
    assert loaded(tmp_path, added).warnings == ()


def test_the_origin_of_each_value_is_known(tmp_path: Path) -> None:
    places = loaded(tmp_path, "tasks.max=2\neast->west.topics=a\nwest.ssl.x=y\n").places
    assert places["clusters.east.bootstrap"].where == "mm2.properties:2"
    assert places["flows.east->west.lanes"].where == "mm2.properties:5"
    assert places["flows.east->west.topics"].where == "mm2.properties:6"
    assert places["clusters.west.properties.ssl.x"].where == "mm2.properties:7"


def test_a_cluster_that_is_called_source_is_that_cluster_only(tmp_path: Path) -> None:
    base = BASE.replace("east", "source").replace("west", "target") + "target->source.enabled = true\n"
    result = loaded(tmp_path, "source.consumer.client.rack=r1\ntarget.producer.compression.type=zstd\n", base)
    there, back = result.flows
    assert (there.source.settings, there.target.settings) == ({"client.rack": "r1"}, {})
    assert (there.compression, back.compression) == ("zstd", "")
    assert result.warnings == ()


FROM_THE_FIELD = [
    """\
clusters=source, target
source.bootstrap.servers=my-cluster-kafka-bootstrap.us-east.containers.appdomain.cloud:443
source.security.protocol=SSL
source.ssl.truststore.password=password
source.ssl.truststore.location=/etc/kafka/truststore.jks
target.bootstrap.servers=kafka1:9092,kafka2:9093,kafka3:9094
# enable and configure individual replication flows
source->target.enabled=true
source->target.topics=orders
""",
    """\
clusters=source, target
source.bootstrap.servers=${KAFKA_SOURCE_BROKERS}
target.bootstrap.servers=${KAFKA_TARGET_BROKERS}
target.security.protocol=SASL_SSL
target.ssl.protocol=TLSv1.2
target.ssl.endpoint.identification.algorithm=https
target.sasl.mechanism=PLAIN
target.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="token" \
password=${KAFKA_TARGET_APIKEY};
# enable and configure individual replication flows
source->target.enabled=true
source->target.topics=products
tasks.max=10
""",
]


@pytest.mark.parametrize("text", FROM_THE_FIELD)
def test_files_from_the_field_are_read_without_a_word(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(text)
    environ = {"KAFKA_SOURCE_BROKERS": "s:1,t:2", "KAFKA_TARGET_BROKERS": "u:3", "KAFKA_TARGET_APIKEY": "k"}
    result = load(file, environ=environ)
    assert [flow.name for flow in result.flows] == ["source->target"]
    assert result.warnings == ()
