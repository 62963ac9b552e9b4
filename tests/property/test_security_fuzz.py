"""Parsers of what comes from files and brokers in matters of security: any input leads to an answer or to a refusal."""

from __future__ import annotations

import contextlib
import hashlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.config import jaas
from isthmus.config.security import read_security
from isthmus.errors import SecurityRefused
from isthmus.lab.identities import Authority
from isthmus.security import Login, Secret, Store
from isthmus.wire.security import scram
from isthmus.wire.security.stores import identity, trusted

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\\x00"), max_size=30)
AUTHORITY = Authority()


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@given(st.dictionaries(st.from_regex(r"[a-zA-Z_]{1,12}", fullmatch=True), WORDS, max_size=5))
def test_options_of_a_login_module_are_read_as_they_were_written(options: dict[str, str]) -> None:
    listed = "".join(f' {name}="{quoted(value)}"' for name, value in options.items())
    assert jaas.parse(f"a.b.Module required{listed};").options == options


@given(st.text(alphabet="abM \n;=\"'/*\\\\rquied", max_size=60))
def test_any_text_is_a_login_module_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        jaas.parse(text)
    read_security({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": text})


@given(st.binary(max_size=200))
def test_any_answer_to_scram_is_taken_or_refused(answer: bytes) -> None:
    talk = scram.talk(Login(mechanism="SCRAM-SHA-512", user="u", password=Secret("p")))
    next(talk)
    with contextlib.suppress(scram.Impostor):
        talk.send(answer)


def _jks(password: str, certificate: bytes) -> bytes:
    """A trust store with one certificate, by the format's description."""
    body = struct.pack(">III", 0xFEEDFEED, 2, 1) + struct.pack(">IH", 2, 2) + b"ca" + struct.pack(">q", 0)
    body += struct.pack(">H", 5) + b"X.509" + struct.pack(">I", len(certificate)) + certificate
    return body + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder, issued = tmp_path_factory.mktemp("stores"), AUTHORITY.issue("x")
    der = trusted(Store(certificates=AUTHORITY.pem()), "")[0]
    jks = _jks("secret", der)
    (folder / "s.jks").write_bytes(jks)
    assert trusted(Store(path=str(folder / "s.jks"), password=Secret("secret")), "") == [der]
    return {
        "jks": jks,
        "p12": issued.pkcs12(folder / "s.p12", "secret").read_bytes(),
        "pem": (issued.key_pem() + issued.chain_pem()).encode(),
    }


@given(data=st.data(), kind=st.sampled_from(["jks", "p12", "pem"]), has_password=st.booleans())
def test_a_damaged_store_is_read_or_refused(
    data: st.DataObject, kind: str, has_password: bool, good: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = good[kind]
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + data.draw(st.binary(max_size=4)) + whole[at + data.draw(st.integers(0, 4)) :]
    path = tmp_path_factory.getbasetemp() / "damaged"
    Path(path).write_bytes(damaged)
    store = Store(path=str(path), password=Secret("secret" if has_password else ""))
    for read in (trusted, identity):
        with contextlib.suppress(SecurityRefused):
            read(store, "")
