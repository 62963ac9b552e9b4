"""Logging in again on a living connection, before the broker's `connections.max.reauth.ms` or a token runs out.

Must stay true: while it goes on nothing else is sent on that connection, for a broker takes only SASL then; requests
wait and leave afterwards in their order. A login that fails loses the connection, as the broker would cut it anyway.
"""

from __future__ import annotations

import asyncio

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from isthmus.errors import IsthmusError
from isthmus.security import Login
from isthmus.wire.link import Link
from isthmus.wire.security import sasl

_RENEW_AT = 0.8  # of a session's life


async def keep_logged_in(link: Link, login: Login, lifetime_ms: int) -> None:
    """Runs as long as the link lives."""
    while lifetime_ms > 0:
        await asyncio.sleep(lifetime_ms / 1000 * _RENEW_AT)
        link.hold()
        try:
            lifetime_ms = await _log_in(link, login)
        except IsthmusError as error:
            link.lose(f"the login could not be renewed: {error.message}")
            return
        link.release()


async def _log_in(link: Link, login: Login) -> int:
    talk = sasl.conversation(login, link.name)
    # In a thread, because a token may have to be fetched first.
    message: bytes | None = await asyncio.to_thread(next, talk)
    handshake = SaslHandshakeRequest(mechanism=login.mechanism)
    sasl.check_handshake(await link.send_first(handshake, sasl.HANDSHAKE_VERSION), login, link.name)
    version = link.offer.best(SaslAuthenticateRequest.API_KEY, sasl.AUTHENTICATE_CEILING)
    lifetime_ms = 0
    while message is not None:
        answer = await link.send_first(SaslAuthenticateRequest(auth_bytes=message), version)
        sasl.check_login(answer, login, link.name)
        lifetime_ms = getattr(answer, "session_lifetime_ms", 0)
        message = sasl.answered(talk, bytes(answer.auth_bytes), link.name)
    return lifetime_ms
