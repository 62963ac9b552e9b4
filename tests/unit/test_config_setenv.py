"""setenv.sh of kafka-cloud-replicator: read, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.config.load import Loaded, load
from isthmus.config.shell import Script
from isthmus.config.substitute import Providers
from isthmus.errors import ConfigError
from isthmus.model import Naming
from isthmus.security import Secret, Tunnel

TEMPLATE = (Path(__file__).parent / "samples" / "setenv.sh").read_text()
SHORT = """\
SOURCE_CLUSTER_ID=a
SOURCE_BROKER_SERVERS=a:1
DESTINATION_CLUSTER_ID=b
DESTINATION_BROKER_SERVERS=b:1
REPLICA_TOPICS_SOURCE_REGEX='x.*'
"""


def loaded(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Loaded:
    file = tmp_path / "setenv.sh"
    file.write_text(text)
    return load(file, environ=environ or {})


def refused(tmp_path: Path, added: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, SHORT + added)
    return f"{caught.value} [{caught.value.hint}]"


def test_the_template_is_read(tmp_path: Path) -> None:
    result = loaded(tmp_path, TEMPLATE)
    (flow,) = result.flows
    assert flow.name == "orange->grape"
    assert flow.source.bootstrap[1] == "b0-pkc-orange.us-east1.gcp.confluent.cloud:9092"
    assert flow.topics.include == ("eu[.]xaz[.].*",)
    assert flow.naming == Naming(policy="rename", suffix=".copy")
    assert flow.target.settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="dstkee" password="dstscrtdstscrt";',
    }
    assert result.places["flows.orange->grape.topics"].where == "setenv.sh:24"
    assert result.warnings == ()
    assert flow.source.security.tunnel == Tunnel(
        host="433.34.23.45",
        port=7443,
        secrets=(Secret("list here have high-quality instruction and are priced appropriately"),),
    )
    assert flow.target.security.tunnel is None
    assert result.places["clusters.orange.properties.tunnel.secret"].where == "setenv.sh:32"
    assert "priced appropriately" not in repr(flow)


def test_the_tunnel_may_have_another_port_and_be_dialled_from_the_other_side(tmp_path: Path) -> None:
    more = "export TUNNEL_PORT=9999 TUNNEL_REVERSE=true\n"
    source = loaded(tmp_path, TEMPLATE + more).flows[0].source
    assert str(source.security.tunnel) == "476.34.23.45:9999"
    assert source.settings["tunnel.reverse"] == "true"


def test_half_a_tunnel_is_told(tmp_path: Path) -> None:
    result = loaded(tmp_path, SHORT + "SHARED_SECRET='six words that nobody would guess'\n")
    assert result.flows[0].source.security.tunnel is None
    assert result.warnings == (
        "line 6: `SHARED_SECRET` has no effect: the tunnel needs `SHARED_SECRET` and the address of the side that "
        "listens",
    )
    half = refused(tmp_path, "SHARED_SECRET=short\nSOURCE_SIDE_TUNNEL_IP=h\n")
    assert "too short" in half


@pytest.mark.parametrize(
    ("line", "regex"),
    [
        ("X=eu[.]xaz[.].*", "eu[.]xaz[.].*"),
        ("X='a $HOME `b` \"c\"'", 'a $HOME `b` "c"'),
        ('X="a \\"b\\" \\$c \\\\d" # comment', 'a "b" $c \\d'),
        ("X=a\\ b", "a b"),
        ("X=a'b'\"c\"d", "abcd"),
        ("X=a#b", "a#b"),
        ("export X=one\\\n-two", "one-two"),
        ("P=p; export X=${P}.$P", "p.p"),
        ('P="p q"\nX="<$P>"', "<p q>"),
        ("export P=1 X=2", "2"),
        ("X=${env:HOME_REGION}", "eu"),
        ("X=$HOME_REGION", "eu"),
        ("X=1\nX=2", "2"),
        ("X=cost$", "cost$"),
        ("X=a\nexport X", "a"),
    ],
)
def test_values_are_what_a_shell_would_make_of_them(tmp_path: Path, line: str, regex: str) -> None:
    script = Script(line + "\n", Providers(tmp_path, None, {"HOME_REGION": "eu"}))
    assert script.problems == []
    assert script.assigned["X"].value == regex


@pytest.mark.parametrize(
    ("added", "says"),
    [
        ("X=$(cat secret)\n", "a command substitution would have to be run (FILE:6)"),
        ("X=`cat secret`\n", "a command substitution would have to be run (FILE:6)"),
        ('X="$(cat secret)"\n', "a command substitution would have to be run (FILE:6)"),
        ("X=${Y:-z}\n", "`${...}` with more than a name would have to be run (FILE:6)"),
        ("X=$NOWHERE\n", "the environment has no variable `NOWHERE` (FILE:6)"),
        ("X='open\n", "the quote `'` is never closed (FILE:6)"),
        ('X="open\n', 'the quote `"` is never closed (FILE:6)'),
        ("if true; then\n", "`if` is not an assignment"),
        ("source other.sh\n", "`source` is not an assignment (FILE:6)"),
        ("X=(a|b)\n", "outside quotes is for a shell to run"),
        ("SOURCE_API_KEY=k\n", "`SOURCE_API_KEY` and `SOURCE_API_SECRET` go together (FILE:6)"),
        ("SOURCE_CLUSTER_ID='a b'\n", "`SOURCE_CLUSTER_ID` is `a b` (FILE:6)"),
        ("SOURCE_CLUSTER_ID=b\n", "leads to where it comes from"),
        ("SOURCE_BROKER_SERVERS=nope\n", "`nope` is not a broker address"),
        ("REPLICA_TOPICS_SOURCE_REGEX='a['\n", "is not a regular expression"),
        ("REPLICA_TOPICS_DEST_SUFFIX='a b'\n", "cannot be part of a topic's name (FILE:6)"),
        ("REPLICA_TOPICS_SOURCE_REGEX=\n", "`REPLICA_TOPICS_SOURCE_REGEX` is missing"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(tmp_path: Path, added: str, says: str) -> None:
    assert says.replace("FILE", str(tmp_path / "setenv.sh")) in refused(tmp_path, added)


def test_harmless_commands_and_unknown_names_are_warned_of(tmp_path: Path) -> None:
    added = "set -e\necho done\nSOURCE_API_KEE=1\nBASE=x\nREPLICA_TOPICS_DEST_SUFFIX=$BASE\n"
    result = loaded(tmp_path, SHORT + added)
    assert result.warnings == (
        "line 6: `set` is not run: only assignments are read",
        "line 7: `echo` is not run: only assignments are read",
        "line 8: `SOURCE_API_KEE` is not known and has no effect; did you mean `SOURCE_API_KEY`?",
    )
    assert result.flows[0].naming.suffix == ".x"
    assert result.flows[0].source.settings == {}


def test_without_a_suffix_names_are_kept(tmp_path: Path) -> None:
    assert loaded(tmp_path, SHORT).flows[0].naming == Naming(policy="identity")


def test_quotes_in_a_secret_reach_the_broker(tmp_path: Path) -> None:
    (flow,) = loaded(tmp_path, SHORT + "SOURCE_API_KEY=k\nSOURCE_API_SECRET='a\"b\\c'\n").flows
    assert flow.source.settings["sasl.jaas.config"].endswith('password="a\\"b\\\\c";')
