"""A client's `security.*`, `ssl.*` and `sasl.*` settings into one typed value.

Owns which of Kafka's settings are understood, and what they mean together. Must stay true: verification is off only
where a setting says so in as many words, and that is told; a setting that would change who is trusted and cannot be
followed is an error, not a warning; no value of a secret appears in either. Files are not opened here.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from isthmus.config import jaas, tunnels
from isthmus.config.places import nearest
from isthmus.model import SECURITY_SETTINGS
from isthmus.security import IN_CLEAR, Login, Secret, Security, Store, Tls, TokenSource, Tunnel

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_VERSIONS = ("TLSv1.2", "TLSv1.3")
_OLD = ("TLSv1", "TLSv1.1", "SSLv2Hello", "SSLv3")
_ANY_VERSION = ("TLS", "SSL", "")
_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
_STORES = ("JKS", "PKCS12", "PEM")
_OWN_HANDLER = "OAuthBearerLoginCallbackHandler"
_NAME_CHECK = "ssl.endpoint.identification.algorithm"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a setting
_CLIENT = "sasl.oauthbearer.client.credentials.client."
_USED = frozenset(
    {
        *("security.protocol", "ssl.protocol", "ssl.enabled.protocols", _NAME_CHECK, "ssl.key.password"),
        *(f"ssl.{kind}store.{part}" for kind in ("trust", "key") for part in ("type", "location", "password")),
        *("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"),
        *("sasl.mechanism", "sasl.jaas.config", "sasl.login.callback.handler.class"),
        *(_TOKEN_URL, "sasl.oauthbearer.scope", f"{_CLIENT}id", f"{_CLIENT}secret"),
        *tunnels.NAMES,
    }
)
# Code of one's own would decide who is trusted or who we are: it cannot be loaded here.
_REFUSED = (
    *("ssl.engine.factory.class", "sasl.client.callback.handler.class", "sasl.login.class", "security.providers"),
    "sasl.oauthbearer.jwt.retriever.class",
)
_UNUSED = {
    "ssl.provider": "OpenSSL does the work",
    "ssl.cipher.suites": "OpenSSL's own choice counts",
    "ssl.keymanager.algorithm": "OpenSSL does the work",
    "ssl.trustmanager.algorithm": "OpenSSL does the work",
    "ssl.secure.random.implementation": "OpenSSL does the work",
    "ssl.client.auth": "it is a setting of brokers",
    "sasl.kerberos.": "Kerberos is not spoken here",
    "sasl.login.": "logins are renewed when four fifths of their life are over",
    "sasl.oauthbearer.": "it is not needed for client credentials",
}


@dataclass(frozen=True, slots=True)
class Told:
    """Something about one setting: its name, what, and what to do."""

    name: str
    text: str
    hint: str = ""


@dataclass(slots=True)
class Reading:
    """What settings say: the value, what is wrong, what is doubtful."""

    settings: Mapping[str, str] = field(repr=False)
    wrong: list[Told] = field(default_factory=list)
    doubts: list[Told] = field(default_factory=list)
    security: Security = IN_CLEAR

    def take(self) -> Reading:
        protocol = self._one_of("security.protocol", PROTOCOLS, "PLAINTEXT")
        self._look_at_names()
        tls = self._tls() if protocol.endswith("SSL") else None
        login = self._login() if protocol.startswith("SASL_") else None
        self.security = Security(tls=tls, login=login, tunnel=self._tunnel())
        self.doubts += self._dangers(self.security)
        self.doubts += self._without_effect(protocol)
        return self

    def _tunnel(self) -> Tunnel | None:
        wrong: tunnels.Said = []
        doubts: tunnels.Said = []
        found = tunnels.read_tunnel(self.settings, wrong, doubts)
        self.wrong += [Told(*each) for each in wrong]
        self.doubts += [Told(*each) for each in doubts]
        return found

    def _get(self, name: str) -> str:
        return self.settings.get(name, "").strip()

    def _one_of(self, name: str, known: tuple[str, ...], default: str) -> str:
        value = self._get(name).upper() or default
        if value not in known:
            self.wrong.append(Told(name, f"`{name}` is none of {', '.join(known)}", nearest(value, known)))
            return default
        return value

    # --- names ----------------------------------------------------------------------------------

    def _look_at_names(self) -> None:
        for name in self.settings:
            if not name.startswith(SECURITY_SETTINGS) or name in _USED:
                continue
            if name in _REFUSED:
                if self._get(name):
                    text = f"`{name}`: code of one's own cannot be loaded, and it would decide about trust"
                    self.wrong.append(Told(name, text, "drop it, or use what Kafka has built in"))
            elif why := next((why for known, why in _UNUSED.items() if name.startswith(known)), ""):
                self.doubts.append(Told(name, f"`{name}` has no effect: {why}"))
            else:
                hint = nearest(name, _USED)
                said = f"; {hint}" if hint.startswith("did") else ""
                self.doubts.append(Told(name, f"`{name}` is not known and has no effect{said}"))

    def _without_effect(self, protocol: str) -> Iterator[Told]:
        """The slip that hurts most: everything is set but the protocol."""
        for prefix, speaks in (("ssl.", protocol.endswith("SSL")), ("sasl.", protocol.startswith("SASL_"))):
            unused = [name for name in self.settings if name.startswith(prefix) and name in _USED]
            if unused and not speaks:
                text = f"`{unused[0]}` has no effect: `security.protocol` is {protocol}"
                yield Told(unused[0], text)

    @staticmethod
    def _dangers(security: Security) -> Iterator[Told]:
        tls, login = security.tls, security.login
        if tls is not None and not tls.verify_name:
            yield Told(
                _NAME_CHECK,
                f"THE NAMES OF BROKERS ARE NOT VERIFIED, because `{_NAME_CHECK}` is empty: whoever has any "
                "certificate that the trust store accepts can pose as a broker, and read and alter everything",
            )
        if tls is None and login is not None and not login.mechanism.startswith("SCRAM"):
            what = "PASSWORD" if login.mechanism == "PLAIN" else "TOKEN"
            where = "THE NETWORK" if security.tunnel is None else "THE NETWORK BEYOND THE TUNNEL"
            yield Told("security.protocol", f"THE {what} CROSSES {where} IN CLEAR: SASL_PLAINTEXT has no TLS")
        if login is not None and login.tokens is not None and login.tokens.url.startswith("http:"):
            yield Told(_TOKEN_URL, f"THE CLIENT'S SECRET CROSSES THE NETWORK IN CLEAR: `{_TOKEN_URL}` is not https")

    # --- TLS ------------------------------------------------------------------------------------

    def _tls(self) -> Tls:
        lowest, highest = self._versions()
        return Tls(
            trust=_trust(self.settings),
            own=self._own(),
            verify_name=self._verify_name(),
            lowest=lowest,
            highest=highest,
        )

    def _verify_name(self) -> bool:
        if _NAME_CHECK not in self.settings:
            return True
        value = self._get(_NAME_CHECK)
        if value.lower() not in ("https", ""):
            self.wrong.append(Told(_NAME_CHECK, f"`{_NAME_CHECK}`: `https` is meant, or nothing to switch it off"))
        return value != ""

    def _versions(self) -> tuple[str, str]:
        """Of those enabled, none above `ssl.protocol`; those before 1.2 are never spoken."""
        enabled = [part.strip() for part in self._get("ssl.enabled.protocols").split(",") if part.strip()]
        highest = self._get("ssl.protocol")
        for name, values in (("ssl.enabled.protocols", enabled), ("ssl.protocol", [highest])):
            for value in values:
                if value not in (*_VERSIONS, *_OLD, *_ANY_VERSION):
                    self.wrong.append(Told(name, f"`{name}` names no version of TLS", f"known: {', '.join(_VERSIONS)}"))
        allowed = [v for v in _VERSIONS if (not enabled or v in enabled) and (highest not in _VERSIONS or v <= highest)]
        if highest in _OLD or not allowed:
            name = "ssl.protocol" if highest in _OLD else "ssl.enabled.protocols"
            self.wrong.append(Told(name, f"`{name}` leaves no version that is still safe", "TLSv1.2 is the least"))
            allowed = list(_VERSIONS)
        return allowed[0], allowed[-1]

    def _own(self) -> Store | None:
        for kind in ("trust", "key"):
            self._one_of(f"ssl.{kind}store.type", _STORES, "JKS")
        chain, key = (self._get(f"ssl.keystore.{part}") for part in ("certificate.chain", "key"))
        if bool(chain) != bool(key):
            name = "ssl.keystore.certificate.chain" if chain else "ssl.keystore.key"
            self.wrong.append(Told(name, "`ssl.keystore.certificate.chain` and `ssl.keystore.key` go together"))
        path = self._get("ssl.keystore.location")
        if not path and not key:
            return None
        return Store(
            path="" if key else _absolute(path),
            password=Secret(self.settings.get("ssl.keystore.password", "")),
            certificates=chain,
            key=Secret(key),
            key_password=Secret(self.settings.get("ssl.key.password", "")),
        )

    # --- SASL -----------------------------------------------------------------------------------

    def _login(self) -> Login | None:
        mechanism = self._get("sasl.mechanism").upper() or "GSSAPI"
        if mechanism not in _MODULES:
            default = "" if self._get("sasl.mechanism") else ", which is Kafka's default"
            text = f"`sasl.mechanism` is {mechanism}{default}, and that is not spoken here"
            self.wrong.append(Told("sasl.mechanism", text, f"known: {', '.join(_MODULES)}"))
            return None
        module = self._module(mechanism)
        if mechanism == "OAUTHBEARER":
            return Login(mechanism=mechanism, tokens=self._tokens(module.options if module else {}))
        if module is None:
            return None
        user, password = module.options.get("username", ""), module.options.get("password", "")
        for option, value in (("username", user), ("password", password)):
            if not value:
                self.wrong.append(Told("sasl.jaas.config", f"`sasl.jaas.config` has no `{option}`", "add it"))
        delegated = module.options.get("tokenauth", "").lower() == "true" and mechanism != "PLAIN"
        return Login(mechanism=mechanism, user=user, password=Secret(password), delegated=delegated)

    def _module(self, mechanism: str) -> jaas.Module | None:
        text = self._get("sasl.jaas.config")
        if not text:
            if mechanism != "OAUTHBEARER":  # it may have settings of its own instead
                hint = f"add `sasl.jaas.config`, with {_MODULES[mechanism]}"
                self.wrong.append(Told("sasl.mechanism", "`sasl.jaas.config` is missing", hint))
            return None
        try:
            module = jaas.parse(text)
        except ValueError as error:
            self.wrong.append(Told("sasl.jaas.config", f"`sasl.jaas.config` cannot be read: {error}"))
            return None
        if module.name != _MODULES[mechanism]:
            text = f"`sasl.jaas.config` names another module than `sasl.mechanism` {mechanism} has"
            self.wrong.append(Told("sasl.jaas.config", text, f"{_MODULES[mechanism]} is meant"))
            return None
        return module

    def _tokens(self, options: Mapping[str, str]) -> TokenSource | None:
        handler = self._get("sasl.login.callback.handler.class").rpartition(".")[2]
        if handler and handler != _OWN_HANDLER:
            name = "sasl.login.callback.handler.class"
            self.wrong.append(Told(name, f"`{name}` is not Kafka's own", f"{_OWN_HANDLER} is meant"))
        url = self._get(_TOKEN_URL)
        client, secret = options.get("clientId") or self._get(f"{_CLIENT}id"), self._client_secret(options)
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            said = "is missing" if not url else "is no http or https address"
            self.wrong.append(Told(_TOKEN_URL, f"`{_TOKEN_URL}` {said}", "tokens come from there"))
            return None
        if not client or not secret:
            name = "sasl.jaas.config" if "sasl.jaas.config" in self.settings else _TOKEN_URL
            hint = 'add clientId="..." clientSecret="..." to `sasl.jaas.config`'
            self.wrong.append(Told(name, "OAUTHBEARER needs a client's id and secret", hint))
        prefix = "extension_"
        own = sorted((k.removeprefix(prefix), v) for k, v in options.items() if k.startswith(prefix))
        return TokenSource(
            url=url,
            client_id=client,
            client_secret=Secret(secret),
            scope=options.get("scope") or self._get("sasl.oauthbearer.scope"),
            extensions=tuple(own),
            trust=_trust(options),  # as in Java, the endpoint's own: the options of the module
        )

    def _client_secret(self, options: Mapping[str, str]) -> str:
        return options.get("clientSecret") or self.settings.get(f"{_CLIENT}secret", "")


def _trust(settings: Mapping[str, str]) -> Store | None:
    path, text = (settings.get(f"ssl.truststore.{part}", "").strip() for part in ("location", "certificates"))
    if not path and not text:
        return None
    password = Secret(settings.get("ssl.truststore.password", ""))
    return Store(path="" if text else _absolute(path), password=password, certificates=text)


def _absolute(path: str) -> str:
    """A lane may run in another folder."""
    return os.path.abspath(path) if path else ""  # noqa: PTH100 - resolve() would follow links, which rotate


def read_security(settings: Mapping[str, str]) -> Reading:
    """What a client's settings say about security."""
    return Reading(settings).take()
