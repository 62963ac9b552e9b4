"""Credentials as Kafka client properties.

Owns the spelling of `sasl.jaas.config`, whom a broker takes a client for, and which properties are secrets by their
name. Must stay true: a user or password with quotes and backslashes reaches the broker as it is; a value built of what
a provider gave remembers the references, and can be built from them again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from isthmus.config.substitute import Resolved, literal, shown

_SECRET = re.compile(r"(?i)password|secret|jaas\.config|token|credential|user\.info|keystore\.key|ssl\..*key$")
_PLAIN_OPTION = re.compile(r"""(?i)(?:password|secret|token)\w*\s*=\s*"?[^\s";]+""")
_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_USER = re.compile(r"""username\s*=\s*"((?:[^"\\]|\\.)*)["]""")
_BACKSLASH = re.compile(r"\\(.)")
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def login(mechanism: str, user: str, password: str, *, tls: bool) -> dict[str, str]:
    """The properties of a client that says who it is by name and password."""
    return {
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": _jaas(_MODULES[mechanism], user, password),
    }


def bearer_module(options: Mapping[str, str]) -> str:
    """The login module of OAUTHBEARER with options that are no secrets."""
    listed = "".join(f' {name}="{_quoted(value)}"' for name, value in options.items())
    return f"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required{listed};"


def _jaas(module: str, user: str, password: str) -> str:
    parts = (_quoted(user), _quoted(password))
    made = '{} required username="{}" password="{}";'.format(module, *parts)
    given = [part for part in (user, password) if isinstance(part, Resolved)]
    # A reference gives the bare value: where that needs a backslash, the text cannot be made of references.
    if not given or any(_quoted(part) != part for part in given):
        return made
    texts = [shown(part) if isinstance(part, Resolved) else literal(_quoted(part)) for part in (user, password)]
    return Resolved(made, '{} required username="{}" password="{}";'.format(module, *texts))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def principal(settings: Mapping[str, str]) -> str:
    """Whom a broker takes a client with these properties for, as far as they tell; brokers may map names otherwise."""
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol.startswith("SASL"):
        found = _USER.search(settings.get("sasl.jaas.config", ""))
        return "User:" + _BACKSLASH.sub(r"\1", found[1]) if found else "the user of the SASL login"
    keyed = any(name.startswith("ssl.keystore.") for name in settings)
    return "the user of the client certificate" if protocol == "SSL" and keyed else "User:ANONYMOUS"


def is_secret(name: str) -> bool:
    """Whether a property's value must not be shown, by its name."""
    return _SECRET.search(name) is not None


def holds_secret(name: str, text: str) -> bool:
    """Whether a text as it stands in a file gives a secret away, apart from what its references give."""
    if not is_secret(name):
        return False
    rest = _REFERENCE.sub("", text)
    return _PLAIN_OPTION.search(rest) is not None if "jaas" in name else bool(rest.strip())
