"""`isthmus tunnel`: keys, the files of both sides, what a firewall must let through; and the file of an end."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from isthmus.cli.app import app
from isthmus.config.tunnelfile import EndFile, read_end
from isthmus.errors import ConfigError
from isthmus.security import Secret
from isthmus.tunnel.end import Place
from isthmus.tunnel.identity import identity
from isthmus.tunnel.secret import new_secret

SETENV = (Path(__file__).parent / "samples" / "setenv.sh").read_text()
PHRASE = "list here have high-quality instruction and are priced appropriately"
KEY = new_secret()


def asked(*words: object) -> Result:
    result = CliRunner().invoke(app, ["tunnel", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def told(*words: object) -> Any:
    return json.loads(asked(*words, "-o", "json").stdout)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keygen_writes_a_key_that_only_its_owner_may_read_and_does_not_print_it(tmp_path: Path) -> None:
    file = tmp_path / "tunnel.key"
    result = asked("keygen", file)
    key = file.read_text().strip()
    assert mode(file) == 0o600
    assert key not in result.output
    assert identity(Secret(key)).key_id in result.output
    with pytest.raises(ConfigError, match="exists already"):
        asked("keygen", file)
    assert file.read_text().strip() == key


def test_rotate_puts_a_new_key_first_and_finish_takes_the_old_one_out(tmp_path: Path) -> None:
    file = tmp_path / "tunnel.key"
    first = told("keygen", file)["key_id"]
    both = told("rotate", file)["valid"]
    assert both[1:] == [first]
    assert told("rotate", file, "--finish")["valid"] == both[:1]
    assert mode(file) == 0o600
    assert len(file.read_text().split()) == 1


def prepared(tmp_path: Path, side: str, more: str = "") -> tuple[Any, Path]:
    script = tmp_path / "setenv.sh"
    script.touch(mode=0o600)
    script.write_text(SETENV + more)
    out = tmp_path / side
    result = asked("prepare", "--side", side, "--out", out, script, "-o", "json")
    assert PHRASE not in result.output
    assert "srcscrt" not in result.output
    assert PHRASE not in asked("prepare", "--side", side, "--out", out, script).output
    return json.loads(result.stdout), out


def test_the_source_opens_its_one_port_to_the_other_side_and_gets_its_files(tmp_path: Path) -> None:
    found, out = prepared(tmp_path, "source")
    way, *brokers = found["firewall"]
    assert (way["direction"], way["who"], way["port"]) == ("in", "476.34.23.45", 7443)
    assert {(each["direction"], each["port"]) for each in brokers} == {("out", 9092)}
    assert [Path(each).name for each in found["files"]] == [
        "tunnel.yaml",
        "tunnel.key",
        "compose.yaml",
        "isthmus-tunnel.service",
    ]
    assert {mode(out / name) for name in ("tunnel.yaml", "tunnel.key")} == {0o600}
    end = read_end(out / "tunnel.yaml")
    assert (end.spec.role, end.spec.listen) == ("exit", Place("0.0.0.0", 7443))
    assert end.spec.secrets == (Secret(PHRASE),)
    assert end.cluster is not None
    assert end.cluster.security.protocol == "SASL_SSL"
    assert "tunnel serve" in (out / "isthmus-tunnel.service").read_text()
    for name in ("compose.yaml", "isthmus-tunnel.service"):
        assert PHRASE not in (out / name).read_text()


def test_the_destination_only_goes_out(tmp_path: Path) -> None:
    found, out = prepared(tmp_path, "destination")
    (way,) = found["firewall"]
    assert (way["direction"], way["to"], way["port"]) == ("out", "433.34.23.45", 7443)
    end = read_end(out / "tunnel.yaml")
    assert (end.spec.role, str(end.spec.dial)) == ("entry", "433.34.23.45:7443")
    assert "tunnel connect" in (out / "isthmus-tunnel.service").read_text()


def test_where_the_exit_dials_the_destination_opens_the_port(tmp_path: Path) -> None:
    found, out = prepared(tmp_path, "source", "export TUNNEL_REVERSE=true TUNNEL_PORT=8443\n")
    assert {each["direction"] for each in found["firewall"]} == {"out"}
    assert (found["firewall"][0]["to"], found["firewall"][0]["port"]) == ("476.34.23.45", 8443)
    assert str(read_end(out / "tunnel.yaml").spec.dial) == "476.34.23.45:8443"
    found, out = prepared(tmp_path, "destination", "export TUNNEL_REVERSE=true TUNNEL_PORT=8443\n")
    assert {each["direction"] for each in found["firewall"]} == {"in"}
    assert found["firewall"][0]["who"] == "433.34.23.45"
    assert read_end(out / "tunnel.yaml").spec.listen == Place("0.0.0.0", 8443)


def test_a_file_without_a_tunnel_has_nothing_to_prepare_or_to_look_at(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text("{clusters: {a: {bootstrap: 'e:1'}, b: {bootstrap: 'w:1'}}, flows: [{from: a, to: b}]}")
    for words in (["prepare", "--side", "source"], ["status"]):
        with pytest.raises(ConfigError, match="behind a tunnel"):
            asked(*words, file)


# --- the file of an end -----------------------------------------------------------------------


def end_of(tmp_path: Path, text: str, key_mode: int = 0o600) -> EndFile:
    key = tmp_path / "k"
    key.write_text(KEY)
    key.chmod(key_mode)
    file = tmp_path / "end.yaml"
    file.write_text(text)
    file.chmod(0o600)
    return read_end(file, {"SHARED": PHRASE})


def test_an_end_is_read_with_its_rules_and_limits(tmp_path: Path) -> None:
    text = "role: exit\nlisten: '[::]:7443'\nsecret: ${SHARED}\nallow: ['*.far:9092']\nlimits: {connections: 7}\n"
    end = end_of(tmp_path, text)
    assert end.spec.listen == Place("::", 7443)
    assert end.spec.limits.connections == 7
    assert [rule.pattern for rule in end.spec.allow] == ["*.far"]
    assert end.key_file is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("role: exit\nsecret_file: k\nallow: ['a:1']", "either `listen` or `dial`"),
        ("role: exit\nlisten: 'a:1'\nallow: ['a:1']", "either `secret` or `secret_file`"),
        ("role: exit\nlisten: 'a:1'\nsecret_file: k", "leads nowhere"),
        ("role: exit\nlisten: 'a:1'\nsecret_file: k\nallow: [nonsense]", "no rule"),
        ("role: entry\ndial: 'a:1'\nsecret_file: k\nlocal: '0.0.0.0:1080'", "loopback"),
        ("role: entry\nlisten: 'a:1'\nsecret_file: k\nmetrics: '10.0.0.1:1'", "loopback"),
        ("role: entry\ndial: 'a:1'\nsecret_file: k", "local"),
        ("role: entry\nlisten: 'a:1'\nsecret_file: nope", "cannot be read"),
        ("role: entry\nlisten: 'a:1'\nsecret: hunter2-short", "too short"),
        ("role: neither\nlisten: 'a:1'\nsecret_file: k", "role"),
        ("role: entry\nlisten: 'a:1'\nsecret_file: k\nsecrte: x", "unknown key `secrte`"),
    ],
)
def test_an_end_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        end_of(tmp_path, text)
    assert said in f"{caught.value} {caught.value.hint}"
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


def test_a_secret_that_is_no_good_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("hunter2-short")
    (tmp_path / "short").chmod(0o600)
    for given, place in (("secret: hunter2-short", "end.yaml:3"), ("secret_file: short", "short")):
        with pytest.raises(ConfigError) as caught:
            end_of(tmp_path, f"role: entry\nlisten: 'a:1'\n{given}\n")
        assert (caught.value.code, caught.value.where) == ("TUNNEL_SECRET", str(tmp_path / place))


def test_a_key_file_that_others_may_read_is_refused_with_the_chmod_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        end_of(tmp_path, "role: entry\nlisten: 'a:1'\nsecret_file: k\n", key_mode=0o640)
    assert caught.value.code == "EXPOSED"
    assert caught.value.hint == f"chmod go= {tmp_path / 'k'}"


def test_serve_and_connect_point_at_each_other(tmp_path: Path) -> None:
    end_of(tmp_path, "role: entry\nlisten: '127.0.0.1:1'\nsecret_file: k\n")
    with pytest.raises(ConfigError) as caught:
        asked("connect", tmp_path / "end.yaml")
    assert "tunnel serve" in caught.value.hint


def test_status_says_what_is_closed_and_ends_with_12(tmp_path: Path) -> None:
    end_of(tmp_path, "role: entry\nlisten: '127.0.0.1:1'\nsecret_file: k\n")
    result = asked("status", tmp_path / "end.yaml", "-o", "json")
    assert result.exit_code == 12
    (row,) = json.loads(result.stdout)
    assert not row["ok"]
    assert "[TUNNEL]" in row["detail"]
