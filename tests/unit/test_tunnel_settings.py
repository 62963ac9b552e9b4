"""A cluster's way through a tunnel, as files say it: read, refused, shown, and sent along without giving it away."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus.cli.app import app
from isthmus.config.load import load
from isthmus.errors import ConfigError
from isthmus.model import Cluster
from isthmus.security import SEAL_VARIABLE, Secret, Tunnel, make_seal_key
from isthmus.wire.dial import dial

# Fixed: they are part of names of tests, which have to be the same in every worker.
KEY, OLD = ("isthmus-key-" + letter * 43 for letter in "AE")
FLOW = """\
clusters:
  east:
    bootstrap: "b1.far:9092"
    tunnel: {TUNNEL}
  west: {bootstrap: "w:1"}
flows: [{from: east, to: west, topics: [a]}]
"""


def written(tmp_path: Path, tunnel: str, key: str = f"{KEY}\n{OLD}\n", mode: int = 0o600) -> Path:
    path = tmp_path / "keys" / "tunnel"
    path.parent.mkdir(exist_ok=True)
    path.write_text(key)
    path.chmod(mode)
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW.replace("{TUNNEL}", tunnel))
    return file


def source(file: Path) -> Cluster:
    return load(file).flows[0].source


def test_our_yaml_says_where_to_dial_and_with_which_secrets(tmp_path: Path) -> None:
    file = written(tmp_path, '{dial: "203.0.113.7:7443", secret: "${dir:keys:tunnel}"}')
    assert source(file).security.tunnel == Tunnel(host="203.0.113.7", port=7443, secrets=(Secret(KEY), Secret(OLD)))
    assert load(file).warnings == ()
    assert source(written(tmp_path, '{dial: "[::1]:1", secret: "${dir:keys:tunnel}"}')).security.tunnel is not None


def test_so_does_any_format_that_has_properties_of_clusters(tmp_path: Path) -> None:
    written(tmp_path, "{}")
    file = tmp_path / "mm2.properties"
    lines = "clusters=a,b\na.bootstrap.servers=h:1\nb.bootstrap.servers=h:2\na->b.enabled=true\n"
    file.write_text(f"{lines}a.tunnel.dial=far:7443\na.tunnel.secret=${{dir:keys:tunnel}}\n")
    found = load(file)
    assert str(found.flows[0].source.security.tunnel) == "far:7443"
    assert found.flows[0].target.security.tunnel is None
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("tunnel", "key", "said"),
    [
        ('{dial: "far", secret: "${dir:keys:tunnel}"}', KEY, "host:port"),
        ('{dial: "far:1"}', KEY, "`clusters.east.tunnel.secret` is missing"),
        ('{dail: "far:1"}', KEY, "did you mean `dial`?"),
        ('{dial: "far:1", secret: "${dir:keys:tunnel}"}', "guess", "too short"),
        ('{dial: "far:1", secret: "${dir:keys:tunnel}"}', KEY[:-3], "damaged"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line_and_without_the_secret(
    tmp_path: Path, tunnel: str, key: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, tunnel, key))
    told = f"{caught.value} {caught.value.hint}"
    assert said in told
    assert "flow.yaml:4" in told
    assert key not in told


def test_a_key_file_that_others_may_read_is_refused_with_the_line_that_helps(tmp_path: Path) -> None:
    file = written(tmp_path, '{dial: "far:1", secret: "${dir:keys:tunnel}"}', mode=0o644)
    error = CliRunner().invoke(app, ["config", "check", str(file)]).exception
    assert isinstance(error, ConfigError)
    assert error.code == "EXPOSED"
    assert error.hint == f"chmod go= {tmp_path / 'keys' / 'tunnel'}"
    (tmp_path / "keys" / "tunnel").chmod(0o600)
    assert CliRunner().invoke(app, ["config", "check", str(file)]).exit_code == 0


def test_a_secret_that_stands_in_the_file_itself_needs_a_file_that_is_closed(tmp_path: Path) -> None:
    file = written(tmp_path, f'{{dial: "far:1", secret: "{KEY}"}}')
    file.chmod(0o644)
    assert load(file).exposed == (file,)
    file.chmod(0o600)
    assert load(file).exposed == ()


def test_the_secret_is_not_shown_and_what_is_converted_means_the_same(tmp_path: Path) -> None:
    file = written(tmp_path, '{dial: "far:1", reverse: true, secret: "${dir:keys:tunnel}"}')
    for command in (["config", "show", str(file)], ["config", "convert", str(file)]):
        result = CliRunner().invoke(app, command)
        assert "${dir:keys:tunnel}" in result.stdout
        assert KEY not in result.output
    again = tmp_path / "again.yaml"
    again.write_text(result.stdout)
    assert load(again).flows == load(file).flows


def test_orders_carry_the_secret_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, str] = {}
    make_seal_key(made)
    monkeypatch.setenv(SEAL_VARIABLE, made[SEAL_VARIABLE])
    cluster = source(written(tmp_path, '{dial: "far:1", secret: "${dir:keys:tunnel}"}'))
    travelling = cluster.for_travel()
    sealed = pickle.dumps(travelling)
    assert KEY.encode() not in sealed
    assert OLD.encode() not in sealed
    assert pickle.loads(sealed).security == cluster.security
    assert KEY not in repr(cluster)


def test_a_cluster_behind_a_tunnel_is_never_reached_past_it() -> None:
    """Were the settings not read, a broker of the same name here would be asked instead."""
    cluster = Cluster(alias="east", bootstrap=("127.0.0.1:1",), settings={"tunnel.dial": "far:1"})
    with pytest.raises(ConfigError, match="would be reached without"):
        asyncio.run(dial(cluster, "127.0.0.1", 1, 1.0))
