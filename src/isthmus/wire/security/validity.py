"""How long certificates are valid: those that brokers show, our own, and the authority that signed a broker's.

Nothing is judged here, and nothing secret is read: certificates are public. What must stay true: a broker's
certificate is the one of a connection whose handshake has verified it.
"""

from __future__ import annotations

from typing import NamedTuple

from isthmus.security import Tls
from isthmus.wire.security.stores import identity, trusted


class Validity(NamedTuple):
    """`until`: seconds since 1970."""

    whose: str
    subject: str
    until: float


def of_certificate(der: bytes, whose: str) -> Validity:
    from cryptography import x509  # slow to import

    certificate = x509.load_der_x509_certificate(der)
    return Validity(whose, certificate.subject.rfc4514_string(), certificate.not_valid_after_utc.timestamp())


def own(tls: Tls, where: str) -> list[Validity]:
    """Our certificate, if we have one."""
    if tls.own is None:
        return []
    chain = identity(tls.own, where).chain
    return [of_certificate(chain[0], "our own certificate")] if chain else []


def authorities(shown: list[bytes], tls: Tls, where: str) -> list[Validity]:
    """Those of the trust store that have signed one of these; others in it may be as old as they like."""
    from cryptography import x509

    if tls.trust is None:
        return []
    issuers = {x509.load_der_x509_certificate(der).issuer for der in shown}
    known = [(der, x509.load_der_x509_certificate(der).subject) for der in trusted(tls.trust, where)]
    return [of_certificate(der, "the authority in the trust store") for der, subject in known if subject in issuers]
