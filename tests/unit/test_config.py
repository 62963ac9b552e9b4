"""Our YAML: what it yields, and how each mistake is told."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from isthmus.config.load import Loaded, load
from isthmus.config.schema import TuningSpec, json_schema
from isthmus.errors import ConfigError
from isthmus.model import Groups, Growth, Mm2Topics, Naming, Start, Sync, Topics, Tuning

CLUSTERS = """\
clusters:
  east: {bootstrap: "e1:9092, e2:9092"}
  west: {bootstrap: [w:9092]}
"""
FLOW = "flows:\n  - from: east\n    to: west\n"


def loaded(tmp_path: Path, text: str, name: str = "flows.yaml") -> Loaded:
    file = tmp_path / name
    file.write_text(text)
    return load(file)


def refused(tmp_path: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    return caught.value


def told(tmp_path: Path, text: str) -> str:
    """Line (where there is one mistake), message and hint of a refusal."""
    error = refused(tmp_path, text)
    line = error.where.removeprefix(f"{tmp_path / 'flows.yaml'}")
    return f"{line} {error.message} [{error.hint}]"


def test_a_short_file_takes_the_defaults_of_the_model(tmp_path: Path) -> None:
    result = loaded(tmp_path, CLUSTERS + FLOW)
    (flow,) = result.flows
    assert flow.name == "east->west"
    assert flow.source.bootstrap == ("e1:9092", "e2:9092")
    assert flow.target.bootstrap == ("w:9092",)
    assert (flow.topics, flow.naming, flow.tuning) == (Topics(), Naming(), Tuning())
    assert (flow.lanes, flow.replication_factor, flow.on_gap) == (1, -1, "stop")
    assert not flow.grows
    assert result.warnings == ()
    assert result.origin == tmp_path / "flows.yaml"


def test_every_key_reaches_the_flow(tmp_path: Path) -> None:
    keys = """\
    topics: [orders, "a{1,2}"]
    exclude: "x, y.*"
    naming: {policy: default, separator: _}
    lanes: 2
    growth: {least: 1, shrink_after_seconds: 60}
    replication_factor: 3
    internal_replication_factor: 1
    on_gap: skip
    tuning: {commit_interval_ms: 100, epoch_seconds: 5, fetch_wait_ms: 0}
"""
    (flow,) = loaded(tmp_path, CLUSTERS + FLOW + keys).flows
    assert flow.topics == Topics(include=("orders", "a{1,2}"), exclude=("x", "y.*"))
    assert flow.naming == Naming(separator="_")
    assert (flow.lanes, flow.replication_factor, flow.internal_replication_factor) == (2, 3, 1)
    assert flow.growth == Growth(least=1, shrink_after_seconds=60.0)
    assert flow.grows
    assert flow.on_gap == "skip"
    assert flow.tuning == Tuning(commit_interval_ms=100, epoch_seconds=5.0, fetch_wait_ms=0)


def test_naming_may_be_one_word(tmp_path: Path) -> None:
    (flow,) = loaded(tmp_path, CLUSTERS + FLOW + "    naming: identity\n").flows
    assert flow.naming == Naming(policy="identity")


def test_client_properties_are_passed_on_as_texts(tmp_path: Path) -> None:
    text = "clusters:\n  east: {bootstrap: e:1, properties: {a: true, b: 3, c: x}}\n  west: {bootstrap: w:1}\n"
    (flow,) = loaded(tmp_path, text + FLOW).flows
    assert flow.source.settings == {"a": "true", "b": "3", "c": "x"}


def test_merged_keys_are_yaml_and_lawful(tmp_path: Path) -> None:
    text = CLUSTERS + "flows:\n  - &one {from: east, to: west, lanes: 2}\n  - {<<: *one, from: west, to: east}\n"
    flows = loaded(tmp_path, text).flows
    assert [(flow.name, flow.lanes) for flow in flows] == [("east->west", 2), ("west->east", 2)]


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("    topcs: a\n", ":7 unknown key `topcs` in `flows[0]` [did you mean `topics`?]"),
        (
            "    zzz: a\n",
            ":7 unknown key `zzz` in `flows[0]` [known here: compression, cut_from, exclude, exclude_groups,",
        ),
        ("    tuning: {commit_interval: 1}\n", "[did you mean `commit_interval_ms`?]"),
        ("    naming: {seperator: _}\n", "[did you mean `separator`?]"),
        ("extra: 1\n", ":7 unknown key `extra` [known here: clusters, flows]"),
        ('    lanes: "2"\n', ":7 `flows[0].lanes`: should be a valid integer, not '2'"),
        ("    lanes: true\n", ":7 `flows[0].lanes`: should be a valid integer, not True"),
        ("    lanes: 2\n    growth: {least: 3}\n", "`growth.least` is 3, but `lanes` allows 2"),
        ("    lanes: 0\n", "should be greater than or equal to 1, not 0"),
        ("    replication_factor: 0\n", ":7 `flows[0].replication_factor`: -1 (the cluster's default)"),
        ("    on_gap: jump\n", "should be 'stop' or 'skip', not 'jump'"),
        ("    naming: other\n", ":7 `flows[0].naming.policy`: should be 'default', 'identity' or 'rename'"),
        ("    naming: {separator: ''}\n", ":7 `flows[0].naming.separator`"),
        ("    topics:\n      - ok\n      - 'a['\n", ":9 `flows[0].topics[1]`: `a[` is not a regular"),
        ("    topics: 3\n", ":7 `flows[0].topics`: should be a valid list"),
        ("    lanes: 1\n    lanes: 2\n", ":8 the key `lanes` stands twice, first in line 7"),
        ("    no: 1\n", ":7 the key `no` is not text to YAML [put it in quotes]"),
        ("    tuning: {commit_interval_ms: 60000}\n", "would time out (60000 ms) before"),
        ("    tuning: {commit_bytes: 0}\n", "should be greater than 0, not 0"),
        ("  - {from: east, to: west}\n", ":7 the flow east->west stands twice, first in line 5"),
        ("  - {from: west, to: west}\n", ":7 the flow west->west leads to where it comes from"),
        ("  - {from: west, to: eest}\n", ":7 `flows[1].to`: there is no cluster `eest` [did you mean"),
        ("  - {from: west}\n", ":7 `flows[1].to` is missing [add `to:` there]"),
        ("   bad: indent\n", ":7 not valid YAML"),
        ("    topics: 'open\n", "not valid YAML"),
        ("    topics: 2024-13-45\n", "a value cannot be read"),
        ("    topics: !!python/name:os.system\n", ":7 not valid YAML"),
        ("---\na: 1\n", "not valid YAML: expected a single document"),
        ("    topics: &a [*a]\n", "flows[0].topics"),
        ("    naming: rename\n", ":7 `flows[0].naming`: `rename` needs a `prefix`, a `suffix` or `exact`"),
        ("    naming: {suffix: .copy}\n", "need `policy: rename`, not `default`"),
        ("    naming: {policy: rename, suffix: /}\n", ":7 `flows[0].naming.suffix`"),
        ("    naming: {policy: rename, exact: {a: x, b: x}}\n", "two topics one name"),
        ("    start: soon\n", "earliest, latest or a time such as"),
        ("    start: 2026-01-31T12:00:00\n", "a time needs a zone"),
        ("    start: 2026-01-31\n", "a time needs a zone"),
        ("    start: {}\n", "either `at` or `offsets` is meant"),
        ("    start: {att: latest}\n", "[did you mean `at`?]"),
        ("    start: {offsets: {x: 1}}\n", ":7 `flows[0].start"),
        ("    throttle: fast\n", "bytes per second are meant"),
        ("    throttle: -1\n", "bytes per second are meant"),
        ("    throttle: true\n", "bytes per second are meant"),
        ("    compression: rar\n", ":7 `flows[0].compression`: should be"),
        ("    sync: {acl: true}\n", "[did you mean `acls`?]"),
        ("    sync: {acls: 1}\n", "should be a valid boolean, not 1"),
        ("    sync: {configs_seconds: 0}\n", "should be greater than 0"),
        ("    mm2_topics: {offset_syncs_on: east}\n", "should be 'source' or 'target', not 'east'"),
        ("    groups: 'a['\n", ":7 `flows[0].groups[0]`: `a[` is not a regular"),
    ],
)
def test_each_mistake_is_told_with_its_line(tmp_path: Path, added: str, expected: str) -> None:
    assert expected in told(tmp_path, CLUSTERS + FLOW + added)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", " the file is empty"),
        ("# nothing\n", " the file is empty"),
        ("just words\n", ":1 `the file`: should be a valid dictionary"),
        (CLUSTERS, ":1 `flows` is missing"),
        (CLUSTERS + "flows: []\n", ":4 `flows`: List should have at least 1 item"),
        (CLUSTERS + "flows:\n", ":4 `flows`: should be a valid list"),
        (
            "clusters:\n  a: {bootstrap: nope}\n  b: {bootstrap: b:1}\nflows: [{from: a, to: b}]\n",
            ":2 `clusters.a.boot",
        ),
        (
            "clusters:\n  a: {bootstrap: ''}\n  b: {bootstrap: b:1}\nflows: [{from: a, to: b}]\n",
            ":2 `clusters.a.boot",
        ),
        (
            "clusters:\n  a: {bootstrap: a:99999}\n  b: {bootstrap: b:1}\nflows: [{from: a, to: b}]\n",
            "not a broker",
        ),
        (
            "clusters:\n  a b: {bootstrap: a:1}\n  b: {bootstrap: b:1}\nflows: [{from: a b, to: b}]\n",
            ":2 `a b` cannot",
        ),
        (
            "clusters:\n  a.b: {bootstrap: a:1}\n  b: {bootstrap: b:1}\nflows: [{from: a.b, to: b}]\n",
            "separator `.`",
        ),
        ("clusters: {}\nflows: [{from: a, to: b}]\n", "there is no cluster `a`"),
    ],
)
def test_a_file_that_cannot_work_at_all_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in told(tmp_path, text)


def test_several_mistakes_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    error = refused(tmp_path, CLUSTERS + FLOW + "    topcs: a\n    lanes: 0\n  - {from: wst, to: east}\n")
    lines = error.message.splitlines()
    assert lines[0] == f"3 problems in {tmp_path / 'flows.yaml'}:"
    assert [line.split("flows.yaml:")[1].split(":")[0] for line in lines[1:]] == ["7", "8", "9"]
    assert error.exit_code == 2


def test_secrets_never_appear_in_an_error(tmp_path: Path) -> None:
    text = CLUSTERS.replace("9092]}", "9092], properties: {sasl.password: [hunter2]}}")
    error = refused(tmp_path, text + FLOW)
    assert "sasl.password" in str(error)
    assert "hunter2" not in f"{error}{error.hint}"


def test_a_file_that_is_not_there_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "nothing.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_bytes_that_are_no_text_are_told_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "flows.yaml"
    file.write_bytes(b"clusters:\n  \xff\xfe: 1\n")
    with pytest.raises(ConfigError, match=r"not UTF-8 text .*flows\.yaml:2"):
        load(file)
    file.write_bytes(b"clusters:\n  a: \x07\n")
    with pytest.raises(ConfigError, match=r"not valid YAML.*flows\.yaml:2"):
        load(file)


def test_the_format_is_told_by_content_where_the_name_does_not_say(tmp_path: Path) -> None:
    mm2 = "clusters = a, b\na.bootstrap.servers=a:1\nb.bootstrap.servers=b:1\na->b.enabled=true\n"
    assert loaded(tmp_path, mm2, "mirror").flows[0].name == "a->b"
    assert loaded(tmp_path, CLUSTERS + FLOW, "flows.conf").flows[0].name == "east->west"


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        (
            "    topics: [orders, 'x.*']\n    exclude: 'ord.*'\n",
            "flows.yaml:8: flow east->west: topic `orders`",
        ),
        ("    topics: [__consumer_offsets]\n    exclude: []\n", "`__consumer_offsets` is internal"),
        ("    start: [latest, {topics: a, at: earliest}]\n", "flows.yaml:7: flow east->west: what stands in `start`"),
    ],
)
def test_what_cannot_be_meant_is_doubted_with_its_line(tmp_path: Path, added: str, expected: str) -> None:
    assert any(expected in warning for warning in loaded(tmp_path, CLUSTERS + FLOW + added).warnings)


def test_one_cluster_under_two_names_is_doubted(tmp_path: Path) -> None:
    text = "clusters:\n  east: {bootstrap: a:1}\n  west: {bootstrap: 'a:1'}\n" + FLOW
    (warning,) = loaded(tmp_path, text).warnings
    assert "same broker" in warning


def test_the_schema_speaks_the_words_of_the_file() -> None:
    schema = json_schema()
    flow = schema["$defs"]["FlowSpec"]
    assert set(schema["properties"]) == {"clusters", "flows"}
    assert {"from", "to", "topics", "naming", "tuning"} <= set(flow["properties"])
    assert flow["required"] == ["from", "to"]
    assert flow["additionalProperties"] is False


def test_every_knob_of_the_model_can_be_set() -> None:
    assert set(TuningSpec.model_fields) == {knob.name for knob in dataclasses.fields(Tuning)}
    assert Tuning(**dict(TuningSpec())) == Tuning()


WHOLE = """\
    groups: "team-.*, x"
    exclude_groups: [y]
    naming: {policy: rename, prefix: a., suffix: .z, exact: {orders: sales}}
    start: [{topics: "a.*", at: latest}, {topics: b, offsets: {"0": 7, "2": 9}}, 2026-01-31T12:00:00Z]
    compression: zstd
    throttle: 10MB
    sync: {configs: false, config_exclude: a, defaults_from: source, acls: true, acls_seconds: 5}
    mm2_topics: {heartbeats: false, offset_syncs_on: target, offset_lag_max: 0, group_offsets: true}
"""


def test_everything_of_mirrormaker_has_a_key(tmp_path: Path) -> None:
    (flow,) = loaded(tmp_path, CLUSTERS + FLOW + WHOLE).flows
    assert flow.groups == Groups(include=("team-.*", "x"), exclude=("y",))
    assert flow.naming == Naming(policy="rename", prefix="a.", suffix=".z", exact=(("orders", "sales"),))
    assert flow.starts == (
        Start(topics="a.*", at="latest"),
        Start(topics="b", at="offsets", offsets=((0, 7), (2, 9))),
        Start(at="timestamp", timestamp_ms=1_769_860_800_000),
    )
    assert (flow.compression, flow.throttle) == ("zstd", 10_000_000)
    assert flow.sync == Sync(configs=False, config_exclude=("a",), defaults_from="source", acls=True, acls_seconds=5.0)
    assert flow.mm2_topics == Mm2Topics(
        heartbeats=False, offset_syncs_on="target", offset_lag_max=0, group_offsets=True
    )


@pytest.mark.parametrize(
    ("written", "starts"),
    [
        ("earliest", (Start(),)),
        ("latest", (Start(at="latest"),)),
        ("'2026-01-31T13:00:00.5+01:00'", (Start(at="timestamp", timestamp_ms=1_769_860_800_500),)),
        ("{at: latest, topics: x}", (Start(topics="x", at="latest"),)),
    ],
)
def test_a_start_may_be_one_word_one_time_or_one_rule(tmp_path: Path, written: str, starts: tuple[Start, ...]) -> None:
    assert loaded(tmp_path, CLUSTERS + FLOW + f"    start: {written}\n").flows[0].starts == starts


@pytest.mark.parametrize(
    ("written", "bytes_a_second"), [("1000", 1000), ("10MB", 10**7), ("1.5 kB/s", 1500), ("2MiB", 2 << 20), ("0", 0)]
)
def test_a_throttle_is_a_number_or_a_text(tmp_path: Path, written: str, bytes_a_second: int) -> None:
    assert loaded(tmp_path, CLUSTERS + FLOW + f"    throttle: {written}\n").flows[0].throttle == bytes_a_second


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("    topics: [a, b]\n    exclude: [b, 'c.*']\n", ":8 flow east->west: topic `b` is both wanted and excluded"),
        (
            "    topics: [b]\n    naming: {policy: rename, prefix: x-, exact: {a: x-b}}\n",
            ":8 flow east->west: topics b, a would all be `x-b` on the target [their records would mix",
        ),
    ],
)
def test_contradictions_are_told_with_their_line(tmp_path: Path, added: str, expected: str) -> None:
    assert expected in told(tmp_path, CLUSTERS + FLOW + added)


def test_the_origin_of_each_value_is_known(tmp_path: Path) -> None:
    places = loaded(tmp_path, CLUSTERS + FLOW + "    naming: identity\n    sync: {acls: true}\n").places
    assert places["clusters.east.bootstrap"].where == "flows.yaml:2"
    assert places["flows.east->west.naming.policy"].where == "flows.yaml:7"
    assert places["flows.east->west.sync.acls"].where == "flows.yaml:8"
    assert "flows.east->west.lanes" not in places


@pytest.mark.parametrize(
    ("there", "back", "doubts"),
    [
        ("suffix: .x", "suffix: .x", 0),
        ("suffix: .x", "suffix: .y", 1),
        ("exact: {a: b}", "exact: {b: a}", 0),
        ("exact: {a: b}", "exact: {c: d}", 0),
    ],
)
def test_renames_that_do_not_know_each_other_are_doubted(tmp_path: Path, there: str, back: str, doubts: int) -> None:
    text = (
        f"flows:\n  - {{from: east, to: west, naming: {{policy: rename, {there}}}}}\n"
        f"  - {{from: west, to: east, naming: {{policy: rename, {back}}}}}\n"
    )
    assert len(loaded(tmp_path, CLUSTERS + text).warnings) == doubts
