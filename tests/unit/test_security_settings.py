"""Kafka's security settings as one typed value; what is wrong or dangerous in them is told without their secrets."""

from __future__ import annotations

import pickle
from collections.abc import Generator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isthmus.cli.app import app
from isthmus.config import jaas
from isthmus.config.client import read_client
from isthmus.config.load import load, load_environment
from isthmus.config.security import Reading, read_security
from isthmus.errors import ConfigError, MachineError
from isthmus.model import Cluster
from isthmus.security import (
    SEAL_VARIABLE,
    Login,
    Secret,
    Security,
    Store,
    Tls,
    TokenSource,
    has_seal_key,
    make_seal_key,
)
from isthmus.wire.security import scram

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
LOGIN = Login(mechanism="PLAIN", user="u", password=Secret("hunter2"))
URL = "https://id.example/token"


def security(**changes: str) -> Security:
    reading = read_security(changes and {name.replace("_", "."): value for name, value in changes.items()})
    assert reading.wrong == []
    return reading.security


def wrong(settings: dict[str, str]) -> str:
    reading = read_security(settings)
    assert reading.wrong
    told = "; ".join(f"{each.text} [{each.hint}]" for each in (*reading.wrong, *reading.doubts))
    assert "hunter2" not in told
    return told


def doubts(settings: dict[str, str]) -> str:
    reading = read_security(settings)
    assert reading.wrong == []
    told = "; ".join(each.text for each in reading.doubts)
    assert "hunter2" not in told
    return told


# --- jaas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (PLAIN, {"username": "u", "password": "hunter2"}),
        ('a.B required password=abc=="";', None),
        ("a.B required password=abc==;", {"password": "abc=="}),
        ("a.B required user='it\\'s' password=\"q\\\"\\\\ ;\";", {"user": "it's", "password": 'q"\\ ;'}),
        ('a.B required // who\n user="x" /* and\n how */ ;', {"user": "x"}),
        ("a.B REQUIRED ;", {}),
        ("a.B required", None),
        ('a.B required user="x;', None),
        ("a.B perhaps user=x;", None),
        ("a.B required user=x; c.D required;", None),
        ("a.B required user;", None),
        ("a.B required user=;", None),
        ("", None),
    ],
)
def test_a_jaas_text_is_one_module_with_options(text: str, options: dict[str, str] | None) -> None:
    if options is None:
        with pytest.raises(ValueError, match=r"^[^h]") as caught:
            jaas.parse(text)
        assert "hunter2" not in str(caught.value)
    else:
        assert jaas.parse(text).options == options
        assert "hunter2" not in repr(jaas.parse(text))


# --- what settings mean -----------------------------------------------------------------------


def test_each_protocol_is_told_apart() -> None:
    assert security() == Security()
    assert security(security_protocol="ssl") == Security(tls=Tls())
    assert read_security(SASL).security == Security(tls=Tls(), login=LOGIN)
    assert read_security(SASL | {"security.protocol": "SASL_PLAINTEXT"}).security == Security(login=LOGIN)
    assert read_security(SASL).security.protocol == "SASL_SSL"


def test_stores_are_files_or_texts_with_their_passwords() -> None:
    found = security(
        security_protocol="SSL",
        ssl_truststore_location="/t.jks",
        ssl_truststore_password="tp",
        ssl_keystore_location="/k.p12",
        ssl_keystore_password="kp",
        ssl_key_password="own",
    ).tls
    assert found is not None
    assert found.trust == Store(path="/t.jks", password=Secret("tp"))
    assert found.own == Store(path="/k.p12", password=Secret("kp"), key_password=Secret("own"))
    inline = security(
        security_protocol="SSL",
        ssl_truststore_certificates="ca",
        ssl_keystore_certificate_chain="chain",
        ssl_keystore_key="key",
    ).tls
    assert inline is not None
    assert inline.trust == Store(certificates="ca")
    assert inline.own == Store(certificates="chain", key=Secret("key"))


@pytest.mark.parametrize(
    ("protocol", "enabled", "expected"),
    [
        ("", "", ("TLSv1.2", "TLSv1.3")),
        ("TLSv1.2", "", ("TLSv1.2", "TLSv1.2")),
        ("TLSv1.3", "", ("TLSv1.2", "TLSv1.3")),
        ("TLS", "TLSv1.3", ("TLSv1.3", "TLSv1.3")),
        ("", "TLSv1.1, TLSv1.2", ("TLSv1.2", "TLSv1.2")),
    ],
)
def test_versions_are_those_enabled_up_to_the_protocol(protocol: str, enabled: str, expected: tuple[str, str]) -> None:
    tls = security(security_protocol="SSL", ssl_protocol=protocol, ssl_enabled_protocols=enabled).tls
    assert tls is not None
    assert (tls.lowest, tls.highest) == expected


def test_tokens_come_from_jaas_options_or_from_settings() -> None:
    module = 'x.OAuthBearerLoginModule required clientId="c" clientSecret="hunter2" scope="s" extension_pool="p";'
    base = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": URL,
    }
    tokens = TokenSource(
        url=URL, client_id="c", client_secret=Secret("hunter2"), scope="s", extensions=(("pool", "p"),)
    )
    wanted = Login(mechanism="OAUTHBEARER", tokens=tokens)
    assert read_security(base | {"sasl.jaas.config": module}).security.login == wanted
    client = "sasl.oauthbearer.client.credentials.client."
    own = {f"{client}id": "c", f"{client}secret": "hunter2", "sasl.oauthbearer.scope": "s"}
    found = read_security(base | own).security.login
    assert found is not None
    assert found.tokens is not None
    assert (found.tokens.client_id, found.tokens.client_secret, found.tokens.scope) == ("c", Secret("hunter2"), "s")
    assert "client's id and secret" in wrong(base)
    assert "is missing" in wrong({**base, "sasl.oauthbearer.token.endpoint.url": ""})
    assert "no http or https" in wrong({**base, "sasl.oauthbearer.token.endpoint.url": "file:///hunter2"})
    assert "SECRET CROSSES THE NETWORK IN CLEAR" in doubts(
        {**base, **own, "sasl.oauthbearer.token.endpoint.url": "http://i/t"}
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"security.protocol": "TLS"}, "`security.protocol` is none of"),
        ({"sasl.mechanism": "GSSAPI"}, "`sasl.mechanism` is GSSAPI, and that is not spoken here [known: PLAIN, SCRAM"),
        ({"sasl.mechanism": ""}, "GSSAPI, which is Kafka's default"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "names another module"),
        ({"sasl.jaas.config": ""}, "`sasl.jaas.config` is missing"),
        ({"sasl.jaas.config": "PlainLoginModule required password=hunter2"}, "with a semicolon at its end"),
        ({"sasl.jaas.config": "PlainLoginModule required password=hunter2;"}, "has no `username`"),
        ({"ssl.endpoint.identification.algorithm": "none"}, "`https` is meant, or nothing to switch it off"),
        ({"ssl.protocol": "TLSv1"}, "leaves no version that is still safe"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "leaves no version that is still safe"),
        ({"ssl.enabled.protocols": "TLSv9"}, "names no version of TLS"),
        ({"ssl.keystore.key": "hunter2"}, "go together"),
        ({"ssl.truststore.type": "BKS"}, "`ssl.truststore.type` is none of JKS, PKCS12, PEM"),
        ({"ssl.engine.factory.class": "a.B"}, "code of one's own cannot be loaded"),
    ],
)
def test_what_cannot_be_followed_is_refused(changes: dict[str, str], says: str) -> None:
    assert says in wrong(SASL | changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"ssl.endpoint.identification.algorithm": "https"}, ""),
        ({"ssl.endpoint.identification.algorithm": ""}, "THE NAMES OF BROKERS ARE NOT VERIFIED"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "THE PASSWORD CROSSES THE NETWORK IN CLEAR"),
        ({"security.protocol": "PLAINTEXT"}, "`sasl.mechanism` has no effect: `security.protocol` is PLAINTEXT"),
        ({"ssl.trustore.location": "/x"}, "did you mean `ssl.truststore.location`?"),
        ({"ssl.cipher.suites": "x"}, "`ssl.cipher.suites` has no effect"),
    ],
)
def test_what_is_dangerous_or_without_effect_is_said(changes: dict[str, str], says: str) -> None:
    told = doubts(SASL | changes)
    assert says in told
    assert bool(says) == bool(told)


def test_an_empty_setting_that_switches_names_off_survives_every_format(tmp_path: Path) -> None:
    """Empty values are easily taken for values that are not there."""
    name = "ssl.endpoint.identification.algorithm"
    mm2 = tmp_path / "mm2.properties"
    mm2.write_text(
        "clusters=a,b\na.bootstrap.servers=h:1\nb.bootstrap.servers=h:2\na->b.enabled=true\n"
        f"a.security.protocol=SSL\na.{name}=\n"
    )
    ours = tmp_path / "flow.yaml"
    properties = f"{{security.protocol: SSL, {name}: ''}}"
    ours.write_text(
        f"clusters:\n  a: {{bootstrap: 'h:1', properties: {properties}}}\n  b: {{bootstrap: 'h:2'}}\n"
        "flows: [{from: a, to: b}]\n"
    )
    for file in (mm2, ours):
        (warning,) = [each for each in load(file).warnings if "NOT VERIFIED" in each]
        assert warning.startswith("cluster a: ")
        assert load(file).flows[0].source.security == Security(tls=Tls(verify_name=False))
    client = tmp_path / "client.properties"
    client.write_text(f"bootstrap.servers=h:1\nsecurity.protocol=SSL\n{name}=\n")
    cluster, told = read_client(client)
    assert cluster.security == Security(tls=Tls(verify_name=False))
    assert "NOT VERIFIED" in told[0]


def test_variables_beside_kafka_reos_say_how_to_log_in() -> None:
    end = "KAFKA_CLUSTERS_SOURCE_"
    environ = {
        f"{end}BOOTSTRAP_SERVERS": "a:1",
        f"{end}TOPIC": "t",
        "KAFKA_CLUSTERS_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
        "KAFKA_CLUSTERS_DESTINATION_TOPIC": "u",
        f"{end}SECURITY_PROTOCOL": "SASL_SSL",
        f"{end}SASL_MECHANISM": "PLAIN",
        f"{end}SASL_JAAS_CONFIG": PLAIN,
    }
    loaded = load_environment(environ)
    assert loaded.flows[0].source.security == Security(tls=Tls(), login=LOGIN)
    assert loaded.flows[0].target.security == Security()
    assert loaded.warnings == ()


def test_mistakes_of_all_clusters_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters=a,b\na.bootstrap.servers=h:1\nb.bootstrap.servers=h:2\na->b.enabled=true\n"
        "a.security.protocol=TLS\nb.security.protocol=SASL_SSL\nb.sasl.mechanism=MAGIC\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert "mm2.properties:5: cluster a: `security.protocol`" in caught.value.message
    assert "mm2.properties:7: cluster b: `sasl.mechanism` is MAGIC" in caught.value.message


# --- secrets ----------------------------------------------------------------------------------


def test_a_secret_is_shown_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEAL_VARIABLE, raising=False)
    secret = Secret("hunter2")
    value = read_security(SASL).security
    for text in (repr(secret), str(secret), f"{secret} {value} {value!r}", repr(Reading(SASL))):
        assert "hunter2" not in text
    assert secret.reveal() == "hunter2"
    assert pickle.loads(pickle.dumps(value)) == value


def test_a_secret_travels_sealed_where_there_is_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEAL_VARIABLE, "")
    environ: dict[str, str] = {}
    make_seal_key(environ)
    monkeypatch.setenv(SEAL_VARIABLE, environ[SEAL_VARIABLE])
    value = read_security(SASL).security
    sealed = pickle.dumps(value)
    assert b"hunter2" not in sealed
    assert pickle.loads(sealed) == value
    for other in ({}, {SEAL_VARIABLE: ""}):
        make_seal_key(other)
        monkeypatch.setenv(SEAL_VARIABLE, other[SEAL_VARIABLE])
        with pytest.raises(MachineError) as caught:
            pickle.loads(sealed)
        assert caught.value.code == "SEAL"


def _file(path: Path, text: str, mode: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def _refused(*words: object) -> ConfigError:
    error = CliRunner().invoke(app, [str(word) for word in words]).exception
    assert isinstance(error, ConfigError), error
    assert "hunter2" not in f"{error} {error.hint}"
    return error


def test_files_with_secrets_that_others_may_read_are_refused_with_the_line_that_helps(tmp_path: Path) -> None:
    password = _file(tmp_path / "keys" / "key", "hunter2\n", 0o640)
    jaas_text = PLAIN.replace("hunter2", "${dir:keys:key}")
    text = (
        "clusters=a,b\na.bootstrap.servers=h:1\nb.bootstrap.servers=h:2\na->b.enabled=true\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.password=public\n"
    )
    by_reference = _file(tmp_path / "mm2.properties", f"{text}sasl.jaas.config={jaas_text}\n", 0o644)
    in_it = _file(tmp_path / "plain.properties", f"{text}sasl.jaas.config={PLAIN}\n", 0o604)
    for file, exposed in ((by_reference, password), (in_it, in_it)):
        for command in (("config", "check", file), ("run", file), ("positions", file)):
            error = _refused(*command)
            assert error.code == "EXPOSED"
            assert error.hint == f"chmod go= {exposed}"
        assert load(file).exposed == (exposed,)
        exposed.chmod(0o600)
        assert load(file).exposed == ()
        assert CliRunner().invoke(app, ["config", "check", str(file)]).exit_code == 0


@pytest.mark.parametrize(
    ("mode", "pod", "is_exposed"),
    [(0o440, False, True), (0o440, True, False), (0o400, False, False), (0o444, True, True), (0o460, True, True)],
)
def test_a_pods_own_group_may_read_what_was_mounted_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, pod: bool, is_exposed: bool
) -> None:
    """Kubernetes mounts secrets as root's, and with `fsGroup` opens them to the group of the pod."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    (tmp_path / "password").write_text("hunter2")
    (tmp_path / "password").chmod(mode)
    file = tmp_path / "flow.yaml"
    file.write_text(
        "clusters: {a: {bootstrap: 'a:1', properties: {security.protocol: SSL, "
        "ssl.key.password: '${dir:.:password}'}}, b: {bootstrap: 'b:1'}}\nflows: [{from: a, to: b, topics: [t]}]\n"
    )
    assert bool(load(file).exposed) is is_exposed


def test_key_stores_and_clients_files_must_be_closed_too(tmp_path: Path) -> None:
    store = _file(tmp_path / "own.p12", "", 0o644)
    settings = f"bootstrap.servers=h:1\nsecurity.protocol=SSL\nssl.keystore.location={store}\n"
    client = _file(tmp_path / "client.properties", settings, 0o644)
    assert _refused("topics", "--properties", client).hint == f"chmod go= {store}"
    store.chmod(0o600)
    client.write_text(f"{settings}ssl.keystore.password=hunter2\n")
    assert _refused("topics", "--properties", client).hint == f"chmod go= {client}"


def test_looking_at_an_open_file_is_allowed_and_says_so(tmp_path: Path) -> None:
    text = (
        f"clusters:\n  a: {{bootstrap: 'h:1', properties: {{security.protocol: SASL_SSL, sasl.mechanism: PLAIN, "
        f"sasl.jaas.config: '{PLAIN}'}}}}\n  b: {{bootstrap: 'h:2'}}\nflows: [{{from: a, to: b}}]\n"
    )
    file = _file(tmp_path / "flow.yaml", text, 0o644)
    result = CliRunner().invoke(app, ["config", "show", str(file)])
    assert result.exit_code == 0
    assert f"others on this machine may read the secrets in {file}" in result.stderr
    assert "hunter2" not in result.output


def test_what_travels_to_a_lane_holds_no_secret_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    environ: dict[str, str] = {}
    make_seal_key(environ)
    monkeypatch.setenv(SEAL_VARIABLE, environ[SEAL_VARIABLE])
    settings = SASL | {"client.rack": "r1"}
    cluster = Cluster(alias="a", bootstrap=("h:1",), settings=settings, security=read_security(settings).security)
    sent = cluster.for_travel()
    assert sent.settings == {"client.rack": "r1"}
    assert b"hunter2" in pickle.dumps(cluster)
    assert b"hunter2" not in pickle.dumps(sent)
    monkeypatch.setenv(SEAL_VARIABLE, "too short")
    with pytest.raises(MachineError):
        has_seal_key()


# --- SCRAM ------------------------------------------------------------------------------------


def test_scram_says_what_the_standard_says_and_knows_an_impostor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of RFC 7677."""
    ours = "rOprNGfwEbeRWgbNEkqO"
    monkeypatch.setattr("secrets.token_urlsafe", lambda _: ours)
    nonce = f"{ours}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    challenge = f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    proof = f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    login = Login(mechanism="SCRAM-SHA-256", user="user", password=Secret("pencil"))

    def talk() -> Generator[bytes, bytes, None]:
        begun = scram.talk(login)
        assert next(begun) == b"n,,n=user,r=" + ours.encode()
        return begun

    begun = talk()
    assert begun.send(challenge) == proof
    with pytest.raises(StopIteration):
        begun.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    for answer in (b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", b"", b"e=other-error", b"v=*"):
        begun = talk()
        begun.send(challenge)
        with pytest.raises(scram.Impostor):
            begun.send(answer)
    for bad in (b"", b"r=other,s=eA==,i=4096", challenge.replace(b"4096", b"1"), challenge.replace(b"4096", b"9" * 12)):
        with pytest.raises(scram.Impostor):
            talk().send(bad)
