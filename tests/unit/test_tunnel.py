"""The tunnel's trust and its rules, without a broker: secrets, handshakes, lines, where an exit connects to."""

from __future__ import annotations

import concurrent.futures
import contextlib
import ipaddress
import pickle
import socket
import ssl
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.errors import ConfigError
from isthmus.security import Secret
from isthmus.tunnel.allow import Address, Advertised, AllowList, Rule, is_special, read_rule
from isthmus.tunnel.counters import Counters, Passage
from isthmus.tunnel.identity import Identity, Keyring
from isthmus.tunnel.lines import (
    LONGEST,
    Destination,
    Refused,
    connect_line,
    no_line,
    read_answer,
    read_connect,
    read_line,
)
from isthmus.tunnel.offers import LONGEST_PAUSE_S, pause
from isthmus.tunnel.secret import doubt, key_of, new_secret, several

PHRASE = "list here have high-quality instruction and are priced appropriately"
ONE, OTHER = Secret(new_secret()), Secret(new_secret())


# --- secrets ----------------------------------------------------------------------------------


def test_a_key_from_keygen_is_taken_as_it_is_and_has_32_bytes() -> None:
    (secret,) = several(new_secret())
    assert len(key_of(secret)) == 32
    assert not doubt((secret,))
    assert key_of(secret) != key_of(ONE)


@pytest.mark.parametrize("text", ["ab" * 32, "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA="])
def test_32_bytes_as_openssl_prints_them_are_a_key(text: str) -> None:
    assert len(key_of(Secret(text))) == 32
    assert not doubt(several(text))


def test_a_pass_phrase_gives_the_same_key_everywhere() -> None:
    """The bytes are written down: were they to change, ends of two versions would not know each other."""
    assert key_of(Secret(PHRASE)).hex() == "15ba283f58c657df485877d4f868bd8ad4486d43228254055c0ab77b2a04fc74"
    assert key_of(Secret(PHRASE)) != key_of(Secret(PHRASE + "."))
    assert not doubt(several(PHRASE))


@pytest.mark.parametrize("text", ["", "# only a remark\n", "swordfish", "fifteen-letters", "isthmus-key-abc"])
def test_what_is_missing_short_or_damaged_is_refused_and_not_told(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        several(text)
    assert caught.value.code == "TUNNEL_SECRET"
    assert not text or text not in f"{caught.value} {caught.value.hint}"


def test_a_weak_pass_phrase_is_told_without_saying_it() -> None:
    told = doubt(several("correct horse battery"))
    assert "weak" in told
    assert "horse" not in told


def test_a_text_may_hold_several_secrets_the_first_is_the_one_to_use() -> None:
    assert several(f"# new\n{ONE.reveal()}\n\n{OTHER.reveal()}\n") == (ONE, OTHER)


# --- the handshake ----------------------------------------------------------------------------


class Apart(Exception):
    """A handshake that failed; which end saw what. An alert may be lost when the other end hangs up after it."""

    def __init__(self, dialer: BaseException | None, listener: BaseException | None) -> None:
        super().__init__(f"dialer: {dialer!r}; listener: {listener!r}")
        self.dialer = dialer
        self.listener = listener


def met(client: ssl.SSLContext, name: str, keyring: Keyring) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Both ends after a handshake and one byte each way (TLS 1.3 refuses a client after its own part)."""
    left, right = socket.socketpair()
    left.settimeout(60)
    right.settimeout(60)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        listening = pool.submit(_shaken, keyring.context, right, None)
        one, other = _shaken(client, left, name), listening.result()
    if isinstance(one, ssl.SSLSocket) and isinstance(other, ssl.SSLSocket):
        return one, other
    for each in (one, other):
        if isinstance(each, ssl.SSLSocket):
            each.close()
    raise Apart(*(each if isinstance(each, OSError) else None for each in (one, other)))


def _shaken(context: ssl.SSLContext, raw: socket.socket, name: str | None) -> ssl.SSLSocket | OSError:
    sock = context.wrap_socket(raw, server_side=name is None, server_hostname=name, do_handshake_on_connect=False)
    try:
        sock.do_handshake()
        sock.sendall(b"x")
        if sock.recv(1) == b"x":
            return sock
        raise ConnectionError("hung up")
    except OSError as error:
        sock.close()
        return error


@pytest.fixture
def keyring() -> Iterator[Keyring]:
    yield Keyring([ONE, OTHER])


def test_both_sides_make_the_same_authority_of_a_secret() -> None:
    assert Identity(ONE).authority == Identity(ONE).authority
    assert Identity(ONE).authority != Identity(OTHER).authority


@pytest.mark.parametrize("secret", [ONE, OTHER])
def test_ends_with_the_same_secret_meet_by_tls_1_3_and_leave_nothing_to_resume(
    keyring: Keyring, secret: Secret
) -> None:
    who = Identity(secret)
    client, server = met(who.dialer, who.name, keyring)
    with client, server:
        assert client.version() == server.version() == "TLSv1.3"
        assert client.selected_alpn_protocol() == server.selected_alpn_protocol() == "isthmus-tunnel/1"
        assert keyring.key_id_of(server) == who.key_id
        assert client.session is None or not client.session.has_ticket
        assert "isthmus-key" not in repr(who.__dict__)


def test_an_unknown_secret_is_refused(keyring: Keyring) -> None:
    who = Identity(Secret(new_secret()))
    with pytest.raises(Apart) as caught:
        met(who.dialer, who.name, keyring)
    assert "UNRECOGNIZED_NAME" in str(caught.value.dialer)


def test_a_secret_counts_no_more_when_it_was_taken_out(keyring: Keyring) -> None:
    who = Identity(OTHER)
    keyring.replace([ONE])
    with pytest.raises(Apart):
        met(who.dialer, who.name, keyring)


def test_whoever_names_a_key_that_it_does_not_have_is_refused(keyring: Keyring) -> None:
    """The id of a key crosses the network in clear, so anybody may name it."""
    stranger = Identity(Secret(new_secret())).dialer
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(Apart) as caught:
        met(stranger, Identity(ONE).name, keyring)
    assert "certificate verify failed" in str(caught.value.listener)


def test_an_impostor_that_listens_is_refused_by_who_dials() -> None:
    impostor = Keyring([OTHER])
    impostor._known[Identity(ONE).name] = Identity(OTHER)
    with pytest.raises(Apart) as caught:
        met(Identity(ONE).dialer, Identity(ONE).name, impostor)
    assert isinstance(caught.value.dialer, ssl.SSLCertVerificationError)


def test_a_listeners_certificate_is_of_no_use_to_whoever_dials(keyring: Keyring) -> None:
    """Reflection: what an end shows in one role does not pass in the other."""
    who = Identity(ONE)
    reflected = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    who._fill(reflected, dials=False)
    with pytest.raises(Apart) as caught:
        met(reflected, who.name, keyring)
    assert "unsuitable certificate purpose" in str(caught.value.listener)


def test_nobody_gets_in_without_a_certificate(keyring: Keyring) -> None:
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(cadata=Identity(ONE).authority)
    with pytest.raises(Apart) as caught:
        met(bare, Identity(ONE).name, keyring)
    assert "peer did not return a certificate" in str(caught.value.listener)


def test_nothing_before_tls_1_3_is_spoken(keyring: Keyring) -> None:
    old = Identity(ONE).dialer
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(Apart) as caught:
        met(old, Identity(ONE).name, keyring)
    assert "UNSUPPORTED_PROTOCOL" in str(caught.value.listener)


# --- lines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "port"), [("b-1.kafka.internal", 9092), ("10.0.0.1", 1), ("fd00::1", 65535)])
def test_a_connect_line_says_where_to(host: str, port: int) -> None:
    assert read_connect(connect_line(host, port)) == Destination(host, port)


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"\n", b"CONNECT\n", b"CONNECT a:0\n", b"CONNECT a:65536\n", b"CONNECT a\n", b"CONNECT a:1"),
        *(
            b"connect a:1\n",
            b"CONNECT a:1\r\n",
            b"CONNECT a b:1\n",
            b"CONNECT a/b:1\n",
            b"CONNECT \xc3\xa4:1\n",
            b"CONNECT [a:1\n",
        ),
    ],
)
def test_what_is_no_connect_line_is_none(line: bytes) -> None:
    assert read_connect(line) is None


@given(st.binary(max_size=300))
def test_no_bytes_upset_the_reader_of_lines(line: bytes) -> None:
    found = read_connect(line)
    assert found is None or connect_line(*found) == line or b":0" in line or b"[" in line
    with contextlib.suppress(ConnectionError):
        read_answer(line)


@given(st.text(max_size=400), st.integers())
def test_what_no_line_can_carry_is_refused_before_it_is_sent(host: str, port: int) -> None:
    try:
        line = connect_line(host, port)
    except Refused:
        return
    assert read_connect(line) == Destination(host, port)
    assert line.count(b"\n") == 1


@given(st.text(max_size=400))
def test_a_refusal_arrives_with_its_reason(text: str) -> None:
    found = read_answer(no_line(Refused("BUSY", text)))
    assert found is not None
    assert found.code == "BUSY"


def test_a_line_without_end_and_one_that_never_comes_are_given_up() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"x" * (LONGEST + 1))
        with pytest.raises(ConnectionError):
            read_line(right, 60)
        left.sendall(b"CONN")
        with pytest.raises(TimeoutError):
            read_line(right, 0.01)


# --- where an exit connects to ----------------------------------------------------------------


def names(**known: str) -> dict[str, str]:
    return {name.replace("_", "."): address for name, address in known.items()}


def listed(*rules: str, known: dict[str, str] | None = None, brokers: set[tuple[str, int]] | None = None) -> AllowList:
    def resolve(host: str, port: int) -> list[Address]:
        try:
            return [ipaddress.ip_address((known or {}).get(host, host))]
        except ValueError:
            raise Refused("UNRESOLVED", host) from None

    advertised = Advertised(lambda: brokers, again_s=0.01) if brokers is not None else None
    return AllowList(map(read_rule, rules), advertised, resolve)


def passes(found: AllowList, host: str, port: int = 9092) -> bool:
    try:
        return bool(found.addresses(Destination(host, port)))
    except Refused as refused:
        assert refused.code == "NOT_ALLOWED", refused.code
        return False


def test_without_rules_only_brokers_that_the_cluster_advertises_pass() -> None:
    found = listed(known=names(b1_far="10.0.0.1", b2_far="10.0.0.2"), brokers={("b1.far", 9092), ("B2.far", 9092)})
    assert passes(found, "b1.far")
    assert passes(found, "B2.FAR".lower())
    assert not passes(found, "b1.far", 22)
    assert not passes(found, "other.far")
    assert not passes(listed(), "b1.far")


def test_a_broker_that_joins_later_is_found_by_asking_again() -> None:
    brokers = {("b1.far", 9092)}
    found = listed(known=names(b1_far="10.0.0.1", b2_far="10.0.0.2"), brokers=brokers)
    assert passes(found, "b1.far")
    brokers.add(("b2.far", 9092))
    assert passes(found, "b2.far")


@pytest.mark.parametrize(
    ("rule", "host", "port", "so"),
    [
        ("b1.far:9092", "b1.far", 9092, True),
        ("b1.far:9092", "b1.far", 9093, False),
        ("*.far:9092-9099", "b7.far", 9099, True),
        ("*.far:9092-9099", "b7.far", 9100, False),
        ("*.far:*", "far.example", 9092, False),
        ("10.1.0.0/16:9092", "10.1.2.3", 9092, True),
        ("10.1.0.0/16:9092", "10.2.2.3", 9092, False),
        ("10.0.0.0/8:*", "b1.far", 9092, True),
        ("[fd00::/8]:9092", "fd00::7", 9092, True),
    ],
)
def test_rules_name_hosts_or_networks_and_ports(rule: str, host: str, port: int, so: bool) -> None:
    assert (
        passes(listed(rule, known=names(b1_far="10.9.9.9", b7_far="10.9.9.9", far_example="10.9.9.9")), host, port)
        is so
    )


@pytest.mark.parametrize("rule", ["", "a", "a:", "a:0", "a:9-1", "a:65536", "a b:1", "a/b:1", "10.0.0.1/8:1", "[x]:1"])
def test_what_is_no_rule_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError):
        read_rule(rule)


SPECIAL = ["127.0.0.1", "127.9.9.9", "::1", "169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0", "224.0.0.1"]
DISGUISED = ["::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "100.100.100.200"]


@pytest.mark.parametrize("address", SPECIAL + DISGUISED)
def test_an_allowed_name_that_resolves_to_a_special_address_is_refused(address: str) -> None:
    known = {"b1.far": address}
    assert is_special(ipaddress.ip_address(address))
    assert not passes(listed("*:*", known=known), "b1.far")
    assert not passes(listed(known=known, brokers={("b1.far", 9092)}), "b1.far")
    network = f"[{address}]:9092" if ":" in address else f"{address}:9092"
    assert passes(listed(network, known=known), "b1.far")


def test_a_name_that_no_rule_could_pass_is_not_even_resolved() -> None:
    def resolve(host: str, port: int) -> list[Address]:
        raise AssertionError("asked for it")

    with pytest.raises(Refused, match="no rule allows"):
        AllowList([read_rule("b1.far:9092")], None, resolve).addresses(Destination("secret.internal", 9092))


def test_what_was_checked_is_what_is_connected_to() -> None:
    """DNS rebinding: the second answer is another one, and is never asked for."""
    answers = iter([[ipaddress.ip_address("10.0.0.1")], [ipaddress.ip_address("127.0.0.1")]])
    found = AllowList([read_rule("b1.far:9092")], None, lambda host, port: next(answers))
    assert found.addresses(Destination("b1.far", 9092)) == [ipaddress.ip_address("10.0.0.1")]
    with pytest.raises(Refused):
        found.addresses(Destination("b1.far", 9092))


def test_a_cluster_that_cannot_be_asked_is_named_in_the_refusal() -> None:
    def ask() -> set[tuple[str, int]]:
        raise OSError("no route")

    with pytest.raises(Refused, match="no route"):
        AllowList([], Advertised(ask)).addresses(Destination("b1.far", 9092))


# --- the rest ---------------------------------------------------------------------------------


def test_rules_and_secrets_travel() -> None:
    assert pickle.loads(pickle.dumps(read_rule("a:1"))) == Rule("a", None, 1, 1)
    assert pickle.loads(pickle.dumps(ONE)) == ONE


def test_pauses_grow_to_a_limit_and_differ() -> None:
    longest = [max(pause(n) for _ in range(50)) for n in range(12)]
    assert longest[0] <= 0.5
    assert all(each <= LONGEST_PAUSE_S for each in longest)
    assert longest[-1] > 10
    assert len({pause(3) for _ in range(20)}) > 10


def test_numbers_are_told_as_prometheus_reads_them() -> None:
    lines: list[str] = []
    counters = Counters(lambda passage: lines.append(passage.line()))
    counters.ended(Passage(peer="10.0.0.9:5", key="ab", destination="b1:9092", out=3, back=4, why='a "quote"'))
    text = counters.text()
    assert 'isthmus_tunnel_connections_total{result="passed"} 1\n' in text
    assert 'isthmus_tunnel_bytes_total{direction="back"} 4\n' in text
    assert "# TYPE isthmus_tunnel_pool_idle gauge\nisthmus_tunnel_pool_idle 0\n" in text
    assert lines == [
        'peer="10.0.0.9:5" key="ab" destination="b1:9092" address="" out=3 back=4 seconds=0.0 result="passed" '
        'why="a \\"quote\\""'
    ]
