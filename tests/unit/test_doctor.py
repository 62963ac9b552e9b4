"""What the doctor says of certificates and clocks: no more than is known, and in time."""

from __future__ import annotations

import pytest

from isthmus.engine.certificates import check_of, judged
from isthmus.engine.clocks import Reading, told
from isthmus.errors import TargetError
from isthmus.lab.identities import Authority
from isthmus.security import Store, Tls
from isthmus.wire.security.validity import Validity, authorities, of_certificate

DAY = 86_400
NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("days", "outcomes"), [(31, []), (29, ["warn"]), (0.5, ["warn"]), (0, ["fail"]), (-400, ["fail"])]
)
def test_a_certificate_that_ends_soon_is_a_warning_and_one_that_has_ended_a_failure(
    days: float, outcomes: list[str]
) -> None:
    checks = judged("west", [Validity("our own certificate", "CN=isthmus", NOW + days * DAY)], NOW, TargetError)
    assert [check.outcome.value for check in checks] == outcomes
    assert all("our own certificate (CN=isthmus)" in check.text for check in checks)
    assert all(check.exit_code == TargetError.exit_code for check in checks if check.outcome.value == "fail")


def test_only_the_authority_that_signed_a_broker_counts() -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    signer, stranger = Authority("signer"), Authority("stranger")
    shown = signer.issue("broker").certificate.public_bytes(Encoding.DER)
    tls = Tls(trust=Store(certificates=signer.pem() + stranger.pem()))
    (found,) = authorities([shown], tls, "west")
    assert (found.subject, found.whose) == ("CN=signer authority", "the authority in the trust store")
    assert of_certificate(shown, "it").subject == "CN=broker"


@pytest.mark.parametrize(
    ("reading", "outcome", "says"),
    [
        (None, "ok", "not measured"),
        (Reading(-3_600), "ok", "not measured: the newest stamp there is 3600 s old"),
        (Reading(60), "warn", "at least 60 s ahead"),
        (Reading(-0.1, 0.1), "ok", "within 0.10 s"),
        (Reading(-8, -6), "warn", "7.00 s behind this machine, within 1.00 s"),
        (Reading(-4, 20), "ok", "8.00 s ahead of this machine, within 12.00 s"),
    ],
)
def test_of_a_clock_nothing_is_said_that_is_not_known(reading: Reading | None, outcome: str, says: str) -> None:
    check = told("west", reading)
    assert (check.outcome.value, says in check.text) == (outcome, True), check


@pytest.mark.parametrize(
    ("code", "check"),
    [("TLS_EXPIRED", "tls"), ("STORE", "tls"), ("SASL_LOGIN", "login"), ("OAUTH", "login"), ("UNREACHABLE", "brokers")],
)
def test_a_broker_that_is_not_reached_is_told_under_the_check_that_it_is_about(code: str, check: str) -> None:
    assert check_of(code) == check
