"""Bad input, as a user meets it: one clear message, a distinct exit status, nothing created anywhere.

Each case calls the real command, in a process of its own where the machine is what is wrong. The message says what
is wrong, where (with file and line where a file is to blame) and what to do; a stack trace appears only with --debug.
docs/errors.md lists all codes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.integration.command import Ended, called, fill, isthmus, topics_of, unique, yaml_file

from isthmus.engine import fencing
from isthmus.errors import ConfigError, MachineError, SourceError, TargetError
from isthmus.lab import ClusterSpec, Lab

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

NOBODY = "127.0.0.1:1"  # tcpmux: nothing listens there


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A topic on the source, and a file that asks for it, ready to be spoilt."""

    alias: str
    topic: str
    source: str
    target: str
    folder: Path

    def file(self, **changes: str) -> Path:
        ends = {"source": self.source, "target": self.target} | changes
        return yaml_file(self.folder, ends["source"], ends["target"], alias=self.alias, topics=[self.topic])

    def spoilt(self, old: str, new: str) -> tuple[Path, int]:
        """The file with one text replaced, and the line that it stands in."""
        path = self.file()
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return path, text[: text.index(old)].count("\n") + 1


@pytest.fixture
def scene(lab: Lab, tmp_path: Path) -> Iterator[Scene]:
    """Fails the test if the command left a topic on either cluster."""
    topic = unique("bad-")
    fill(lab["east"], topic, 10, partitions=1)
    before = _topics(lab)
    yield Scene(
        alias=unique("bad"),
        topic=topic,
        source=lab["east"].bootstrap,
        target=lab["west"].bootstrap,
        folder=tmp_path,
    )
    assert _topics(lab) == before, "something was created"


def _topics(lab: Lab) -> dict[str, set[str]]:
    """Not the brokers' own: asking whether transactions work makes a broker create its transaction log."""
    clusters = {name: topics_of(lab[name].bootstrap) for name in ("east", "west")}
    return {name: {topic for topic in topics if not topic.startswith("__")} for name, topics in clusters.items()}


def _refusal(ended: Ended, kind: type[ConfigError | MachineError | SourceError | TargetError], code: str) -> str:
    """The one message of a refused command, all of it."""
    assert ended.code == kind.exit_code, ended
    ended.quiet()
    assert ended.out == "", ended
    assert ended.err.count("error [") == 1, ended
    before, _, message = ended.err.partition("error [")
    assert message.startswith(f"{code}] "), ended
    for line in before.splitlines():  # a flow may have said that it is starting, nothing else
        assert "starting" in line, ended
    return message


# --- the file ---------------------------------------------------------------------------------


def test_an_unknown_key_is_told_with_its_line_and_the_key_that_may_be_meant(scene: Scene) -> None:
    file, line = scene.spoilt("topics:", "topcs:")
    message = _refusal(called("run", file), ConfigError, "CONFIG")
    assert "unknown key `topcs`" in message
    assert f"where: {file}:{line}" in message
    assert "did you mean `topics`?" in message


def test_a_wrong_type_is_told_with_its_line(scene: Scene) -> None:
    file, line = scene.spoilt("lanes: 1", "lanes: two")
    message = _refusal(called("run", file), ConfigError, "CONFIG")
    assert "`flows[0].lanes`: should be a valid integer, not 'two'" in message
    assert f"where: {file}:{line}" in message


def test_a_yaml_syntax_error_is_told_with_its_line(scene: Scene) -> None:
    file, line = scene.spoilt("    lanes: 1", "    lanes: [1")
    message = _refusal(called("run", file), ConfigError, "CONFIG")
    assert "not valid YAML" in message
    assert f"where: {file}:" in message
    assert abs(int(message.partition(f"{file}:")[2].split()[0]) - line) <= 1  # an open bracket shows a line later
    assert "try:" in message


def test_several_mistakes_of_a_file_are_told_together(scene: Scene) -> None:
    file, _ = scene.spoilt("lanes: 1", "lanes: two\n    topcs: x")
    message = _refusal(called("run", file), ConfigError, "CONFIG")
    assert message.count(f"{file}:") >= 2


def test_a_missing_file_is_named(scene: Scene) -> None:
    file = scene.folder / "nowhere.yaml"
    message = _refusal(called("run", file), ConfigError, "CONFIG")
    assert "there is no such file" in message
    assert f"where: {file}" in message


def test_an_mm2_value_that_makes_no_sense_is_told_with_its_line(scene: Scene) -> None:
    file = scene.folder / "mm2.properties"
    file.write_text(
        "clusters = a, b\na.bootstrap.servers = x:1\nb.bootstrap.servers = y:1\na->b.enabled = true\ntasks.max = many\n"
    )
    message = _refusal(called("run", file), ConfigError, "CONFIG")
    assert "`tasks.max` is `many`" in message
    assert f"where: {file}:5" in message


def test_a_stack_trace_is_shown_on_request_only(scene: Scene) -> None:
    ended = called("--debug", "run", scene.folder / "nowhere.yaml")
    assert ended.code == ConfigError.exit_code
    assert "Traceback" in ended.err
    assert "error [CONFIG]" in ended.err


def test_a_wrong_option_is_told_like_any_other_mistake(scene: Scene) -> None:
    message = _refusal(called("run", scene.file(), "--conf", "nonsense"), ConfigError, "CONFIG")
    assert "key=value" in message
    unknown = called("run", scene.file(), "--until-caught-upp")
    assert unknown.code == ConfigError.exit_code
    assert "--until-caught-upp" in unknown.err
    unknown.quiet()


# --- the clusters -----------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize(("end", "kind"), [("source", SourceError), ("target", TargetError)])
def test_a_cluster_that_cannot_be_reached_is_named(
    scene: Scene, end: str, kind: type[SourceError | TargetError]
) -> None:
    file = scene.file(**{end: NOBODY})
    message = _refusal(called("run", file), kind, "UNREACHABLE")
    alias = scene.alias if end == "source" else "west"
    assert f"no bootstrap server of cluster {alias} answers" in message
    assert NOBODY in message
    assert f"where: {file}" in message
    assert "check the addresses" in message


@pytest.mark.spark
def test_a_topic_that_is_not_there_is_named_with_the_one_that_may_be_meant(scene: Scene) -> None:
    file, _ = scene.spoilt(scene.topic, f"{scene.topic}s")
    message = _refusal(called("run", file), SourceError, "UNKNOWN_TOPIC")
    assert f"there is no topic '{scene.topic}s'; did you mean '{scene.topic}'?" in message
    assert f"flow {scene.alias}->west, cluster {scene.alias}" in message
    assert "try:" in message


@pytest.mark.spark
def test_a_pattern_that_matches_no_topic_is_told_with_topics_that_are_there(scene: Scene) -> None:
    file, _ = scene.spoilt(scene.topic, "nothing-like-this.*")
    message = _refusal(called("run", file), SourceError, "NO_TOPICS")
    assert "no topic matches nothing-like-this.*" in message
    assert "topics there:" in message


def test_security_that_cannot_be_spoken_is_refused_and_never_tried_in_the_clear(scene: Scene) -> None:
    file, _ = scene.spoilt(
        f"bootstrap: '{scene.source}'",
        f"bootstrap: '{scene.source}', properties: {{security.protocol: SASL_SSL, sasl.jaas.config: hunter2}}",
    )
    ended = called("run", file)
    message = _refusal(ended, ConfigError, "CONFIG")
    assert f"cluster {scene.alias}: `sasl.mechanism` is GSSAPI, which is Kafka's default" in message
    assert f"where: {file}" in message
    assert "SCRAM-SHA-512" in message
    assert "hunter2" not in ended.err


@pytest.mark.spark
@pytest.mark.parametrize("key", ["replication_factor", "internal_replication_factor"])
def test_more_replicas_than_the_target_has_brokers_are_refused(scene: Scene, key: str) -> None:
    file, _ = scene.spoilt("lanes: 1", f"lanes: 1\n    {key}: 3")
    ended = called("run", file)
    assert ended.code == TargetError.exit_code, ended
    message = _refusal(ended, TargetError, "INTERNAL_TOPICS" if key.startswith("internal") else "REPLICATION_FACTOR")
    assert "INVALID_REPLICATION_FACTOR" in message or "replication factor" in message.lower()
    assert key in message
    assert "cluster west" in message


@pytest.mark.spark
def test_a_target_that_cannot_do_transactions_is_refused_with_the_settings_to_change(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fencing, "FENCE_PATIENCE_S", 3.0)  # a coordinator may be on its way; this one never comes
    unfit = {"transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"}
    with Lab([ClusterSpec(name="unfit", properties=unfit)]) as lab:
        ended = called("run", scene.file(target=lab["unfit"].bootstrap))
        message = _refusal(ended, TargetError, "TRANSACTIONS")
        assert "the target cannot do transactions" in message
        assert "cluster west" in message
        assert "transaction.state.log.replication.factor" in message
        assert topics_of(lab["unfit"].bootstrap) == set()


# --- the machine ------------------------------------------------------------------------------


def _machine_with(folder: Path, version: str | None) -> Mapping[str, str]:
    """An environment in which `java` is a script that calls itself this version; None: there is no Java."""
    folder.mkdir()
    if version is not None:
        java = folder / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2019-01-15' >&2\n")
        java.chmod(0o755)
    return {"PATH": str(folder), "JAVA_HOME": ""}


def test_a_machine_without_java_is_told_to_install_one(scene: Scene, tmp_path: Path) -> None:
    ended = isthmus("run", scene.file(), env=_machine_with(tmp_path / "bin", None))
    message = _refusal(ended, MachineError, "JAVA")
    assert "Java was not found" in message
    assert "where: PATH" in message
    assert "version 17 or newer" in message


@pytest.mark.parametrize(("version", "told"), [("11.0.2", "11.0.2"), ("1.8.0_402", "8.0")])
def test_a_java_that_is_too_old_is_named_with_its_version(
    scene: Scene, tmp_path: Path, version: str, told: str
) -> None:
    ended = isthmus("run", scene.file(), env=_machine_with(tmp_path / "bin", version))
    message = _refusal(ended, MachineError, "JAVA")
    assert f"Java {told} is too old" in message
    assert f"where: {tmp_path / 'bin' / 'java'}" in message
    assert "version 17 or newer" in message


def test_a_master_that_is_none_is_refused(scene: Scene) -> None:
    message = _refusal(called("run", scene.file(), "--master", "local[two]"), ConfigError, "MASTER")
    assert "'local[two]' is no Spark master" in message
    assert "where: --master" in message
    assert "spark://host:7077" in message


def test_a_spark_master_that_does_not_answer_is_told_at_once(scene: Scene) -> None:
    message = _refusal(called("run", scene.file(), "--master", f"spark://{NOBODY}"), MachineError, "SPARK")
    assert f"no Spark master answers: {NOBODY}" in message
    assert "try:" in message


@pytest.mark.spark
def test_a_spark_that_does_not_start_ends_the_command_with_its_last_words(lab: Lab, tmp_path: Path) -> None:
    topic, alias = unique("bad-"), unique("bad")
    fill(lab["east"], topic, 10, partitions=1)
    file = yaml_file(tmp_path, lab["east"].bootstrap, lab["west"].bootstrap, alias=alias, topics=[topic])
    ended = isthmus("run", file, "--conf", "spark.driver.memory=plenty")
    assert ended.code == MachineError.exit_code, ended
    assert "error [SPARK] Spark did not start" in ended.err
    assert "Traceback" not in ended.err
