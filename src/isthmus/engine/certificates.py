"""Is the way to a cluster's brokers safe, and for how long: chain, name and end of certificates, and the login.

What must stay true: that chain and name are right is shown by the handshake itself; whatever failed there is told
under its own code. A certificate that ends within 30 days is a warning, one that has ended a failure.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from isthmus.config.credentials import principal
from isthmus.engine.checks import Check, fail, failed, ok, warn
from isthmus.errors import IsthmusError, SecurityRefused, SourceError, TargetError
from isthmus.wire.cluster import Client
from isthmus.wire.health import Shown, shown_certificates
from isthmus.wire.security.validity import Validity, authorities, of_certificate, own

_DAY_S = 86_400
_SOON_S = 30 * _DAY_S
_Kind = type[SourceError | TargetError]


def check_of(error_code: str) -> str:
    """Which check an error in reaching a broker belongs to."""
    if error_code.startswith(("TLS", "STORE")):
        return "tls"
    return "login" if error_code.startswith(("SASL", "OAUTH")) else "brokers"


async def safety(client: Client, kind: _Kind) -> list[Check]:
    """Of a cluster whose brokers answer."""
    return [*await _tls(client, kind), *_login(client)]


async def _tls(client: Client, kind: _Kind) -> list[Check]:
    tls, alias = client.cluster.security.tls, client.cluster.alias
    if tls is None:
        return []
    shown = await shown_certificates(client)
    try:
        found = _all(client, shown)
    except SecurityRefused as error:
        return [failed("tls", alias, error)]
    checks = judged(alias, found, time.time(), kind)
    if not tls.verify_name:
        hint = (
            "remove ssl.endpoint.identification.algorithm: without it, whoever has any certificate can pose as a broker"
        )
        checks.append(warn("tls", alias, "names in certificates are not checked", hint))
    spoken = ", ".join(sorted({each.version for each in shown}))
    return [*checks, ok("tls", alias, f"{spoken}; chains verified{_names(tls.verify_name)}; {_first_end(found)}")]


async def validities(client: Client) -> list[Validity]:
    """Of every certificate on the way to a cluster: brokers' own, ours, and the authority's. None without TLS."""
    return _all(client, await shown_certificates(client))


def _all(client: Client, shown: Sequence[Shown]) -> list[Validity]:
    tls, alias = client.cluster.security.tls, client.cluster.alias
    if tls is None:
        return []
    found = [of_certificate(each.der, f"the certificate of {each.name}") for each in shown]
    return [*found, *own(tls, alias), *authorities([each.der for each in shown], tls, alias)]


def _names(checked: bool) -> str:
    return " and names" if checked else ""


def _first_end(found: Sequence[Validity]) -> str:
    first = min(found, key=lambda each: each.until)
    return f"the first to end is {first.whose}, {_date(first.until)}"


def judged(alias: str, found: Sequence[Validity], now: float, kind: type[IsthmusError]) -> list[Check]:
    """A line for each certificate that has ended, or will soon."""
    checks: list[Check] = []
    for each in sorted(set(found), key=lambda one: one.until):
        days = (each.until - now) / _DAY_S
        what = f"{each.whose} ({each.subject})"
        if each.until <= now:
            checks.append(fail("tls", alias, f"{what} ended on {_date(each.until)}", "renew it", kind))
        elif each.until - now < _SOON_S:
            text = f"{what} ends on {_date(each.until)}, in {days:.0f} days"
            checks.append(
                warn("tls", alias, text, "renew it; files that are replaced count from the next connection on")
            )
    return checks


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _login(client: Client) -> list[Check]:
    login = client.cluster.security.login
    if login is None:
        return []
    return [ok("login", client.cluster.alias, f"{login.mechanism} as {principal(client.cluster.settings)}")]
