"""Tokens for OAUTHBEARER from an endpoint on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.tokens import TokenEndpoint

from isthmus.errors import SecurityRefused
from isthmus.lab.identities import Authority
from isthmus.security import Login, Secret, Store, TokenSource
from isthmus.wire.security import oauth


def source(endpoint: TokenEndpoint, secret: str = "hunter2", trust: Store | None = None) -> TokenSource:
    return TokenSource(url=endpoint.url, client_id="c", client_secret=Secret(secret), scope="a b", trust=trust)


def refused(tokens: TokenSource) -> SecurityRefused:
    with pytest.raises(SecurityRefused) as caught:
        oauth.token(tokens, "east h:1")
    error = caught.value
    assert error.code == "OAUTH"
    assert tokens.url in error.where
    assert "east h:1" in error.where
    assert "hunter2" not in f"{error!r} {error} {error.hint} {error.__cause__!r}"
    return error


def test_a_token_is_asked_for_once_and_sent_as_the_standard_says() -> None:
    with TokenEndpoint("c", "hunter2") as endpoint:
        login = Login(mechanism="OAUTHBEARER", tokens=source(endpoint))
        for _ in range(3):
            (first,) = list(oauth.talk(login, ""))[:1]
            assert first.startswith(b"n,,\x01auth=Bearer ey")
            assert first.endswith(b".\x01\x01")
        assert endpoint.asked == 1
        assert endpoint.scopes == ["grant_type=client_credentials&scope=a+b"]
        oauth.forget(source(endpoint))
        oauth.token(source(endpoint), "")
        assert endpoint.asked == 2


def test_a_token_that_is_nearly_over_is_replaced() -> None:
    with TokenEndpoint("c", "hunter2", seconds=0) as endpoint:
        for _ in range(2):
            oauth.token(source(endpoint), "")
        assert endpoint.asked == 2


def test_https_endpoints_are_verified(tmp_path: Path) -> None:
    authority = Authority()
    issued = authority.issue("id")
    own = tmp_path / "own.pem"
    own.write_text(issued.key_pem() + issued.chain_pem())
    with TokenEndpoint("c", "hunter2", own=own) as endpoint:
        assert oauth.token(source(endpoint, trust=Store(certificates=authority.pem())), "")
        stranger = source(endpoint, trust=Store(certificates=Authority().pem()))
        assert "certificate verify failed" in str(refused(stranger))


def test_endpoints_that_give_no_token_are_told(tmp_path: Path) -> None:
    with TokenEndpoint("c", "other") as endpoint:
        assert "HTTP status 401" in str(refused(source(endpoint)))
        gone = source(endpoint)
    assert "refused" in str(refused(gone))
