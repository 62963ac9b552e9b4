"""Logging in to a broker by SASL, as far as it is the same for a new connection and for one that logs in again.

Owns which conversation belongs to a mechanism, and the broker's refusals in words. Sending and receiving are left to
`dial` (blocking, a new connection) and `renewal` (among the requests of a living one). Must stay true: what a broker
says about a refusal is shown, what we sent never.
"""

from __future__ import annotations

from collections.abc import Generator

from isthmus.errors import SecurityRefused
from isthmus.security import Login
from isthmus.wire.codes import name as code_name
from isthmus.wire.link import Answer
from isthmus.wire.security import oauth, scram

HANDSHAKE_VERSION = 1
AUTHENTICATE_CEILING = 2
_UNSUPPORTED_MECHANISM, _ILLEGAL_STATE, _FAILED = 33, 34, 58
_SAID = 300  # characters of what a broker says

Conversation = Generator[bytes, bytes, None]


def conversation(login: Login, where: str) -> Conversation:
    """Yields what to send and takes what the broker answers; ends when the login is complete on our side."""
    if login.mechanism == "PLAIN":
        return _plain(login)
    if login.mechanism == "OAUTHBEARER":
        return oauth.talk(login, where)
    return scram.talk(login)


def _plain(login: Login) -> Conversation:
    yield f"\0{login.user}\0{login.password.reveal()}".encode()


def answered(talk: Conversation, answer: bytes, where: str) -> bytes | None:
    """What to send next; None when all is said."""
    try:
        return talk.send(answer)
    except StopIteration:
        return None
    except scram.Impostor as impostor:
        raise SecurityRefused(
            f"the broker is not to be trusted: {impostor}",
            where=where,
            hint="is the address right, and is the password the one that the cluster has?",
            code="SASL_SERVER",
        ) from None


def check_handshake(answer: Answer, login: Login, where: str) -> None:
    """Whether the broker takes this mechanism at all."""
    if answer.error_code == _UNSUPPORTED_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise SecurityRefused(
            f"the broker does not take {login.mechanism}; it takes {offered}",
            where=where,
            hint="set sasl.mechanism to one of these, with the credentials for it",
            code="SASL_MECHANISM",
        )
    if answer.error_code == _ILLEGAL_STATE:
        raise SecurityRefused(
            "this listener wants no login",
            where=where,
            hint="leave SASL_ out of security.protocol, or use the port of a listener with SASL",
            code="SASL_UNWANTED",
        )
    if answer.error_code:
        raise SecurityRefused(f"no login: {code_name(answer.error_code)}", where=where, code="SASL")


def check_login(answer: Answer, login: Login, where: str) -> None:
    if not answer.error_code:
        return
    said = (answer.error_message or code_name(answer.error_code))[:_SAID]
    if answer.error_code == _FAILED and login.tokens is not None:
        oauth.forget(login.tokens)
    who = f" as `{login.user}`" if login.user else ""
    secret = "the client's id, secret and scope" if login.tokens else "user and password in sasl.jaas.config"
    raise SecurityRefused(
        f"the broker refuses the login{who} by {login.mechanism}: {_without(said, login)}",
        where=where,
        hint=f"check {secret}",
        code="SASL_LOGIN",
    )


def _without(said: str, login: Login) -> str:
    """A broker has no reason to repeat a password; should one do so, it goes no further."""
    for secret in (login.password, login.tokens.client_secret if login.tokens else login.password):
        said = said.replace(secret.reveal(), "***") if secret else said
    return said
