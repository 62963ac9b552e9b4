"""Certificates and stores for lab clusters, made on the spot: an authority, what it signs, in every format.

Keys are small elliptic ones, so that making a dozen takes no time. JKS is written by Java's own keytool, so that what
is read back was not made by the reader's author. Everything is valid for a day, unless it is meant not to be.
"""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from isthmus.errors import MachineError
from isthmus.machine import java

_DAY = datetime.timedelta(days=1)
HERE = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key and the authority that signed it."""

    key: Any
    certificate: x509.Certificate
    authority: x509.Certificate

    def chain_pem(self) -> str:
        return _pem(self.certificate) + _pem(self.authority)

    def key_pem(self, password: str = "") -> str:
        hidden = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        made: bytes = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)
        return made.decode()

    def pkcs12(self, path: Path, password: str) -> Path:
        """A key store."""
        hidden = BestAvailableEncryption(password.encode())
        data = pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, [self.authority], hidden)
        return _secret_file(path, data)

    def jks(self, path: Path, password: str) -> Path:
        store = self.pkcs12(path.with_suffix(".tmp.p12"), password)
        words = ("-importkeystore", "-srckeystore", store, "-srcstoretype", "PKCS12", "-srcstorepass", password)
        _keytool(*words, "-destkeystore", path, "-deststoretype", "JKS", "-deststorepass", password)
        store.unlink()
        path.chmod(0o600)
        return path


class Authority:
    """Signs certificates as long as it lives."""

    def __init__(self, name: str = "lab") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"{name} authority")
        self.certificate = self._signed(self._name, self._key.public_key(), -_DAY, _DAY, authority=True)

    def pem(self) -> str:
        return _pem(self.certificate)

    def issue(self, name: str, hosts: Sequence[str] = HERE, *, expired: bool = False) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        begin, end = (-2 * _DAY, -_DAY) if expired else (-_DAY, _DAY)
        return Issued(key, self._signed(_name(name), key.public_key(), begin, end, hosts), self.certificate)

    def jks(self, path: Path, password: str) -> Path:
        """A trust store."""
        return self._trust_store(path, password, "JKS")

    def pkcs12(self, path: Path, password: str) -> Path:
        """A trust store as Java makes it, with certificates only."""
        return self._trust_store(path, password, "PKCS12")

    def _trust_store(self, path: Path, password: str, kind: str) -> Path:
        certificate = path.with_suffix(".tmp.pem")
        certificate.write_text(self.pem())
        words = ("-importcert", "-noprompt", "-alias", "ca", "-file", certificate)
        _keytool(*words, "-keystore", path, "-storetype", kind, "-storepass", password)
        certificate.unlink()
        return path

    def _signed(
        self,
        name: x509.Name,
        public: Any,
        begin: datetime.timedelta,
        end: datetime.timedelta,
        hosts: Sequence[str] = (),
        *,
        authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begin)
            .not_valid_after(now + end)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _secret_file(path: Path, data: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path


def _keytool(*words: object) -> None:
    tool = java().with_name("keytool")
    done = subprocess.run([str(tool), *map(str, words)], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise MachineError(f"keytool failed: {(done.stdout + done.stderr).strip()[-300:]}", code="LAB")
