"""How a cluster of a Strimzi resource is reached: `tls` and `authentication`, with secrets by reference.

Owns turning them into Kafka client properties with PEM texts. Must stay true: a value that holds a secret remembers
where it came from (`${secrets:name:key}`) and is never shown; a kind of authentication that we cannot do is refused by
its name.
"""

from __future__ import annotations

import fnmatch
from typing import Any

from isthmus.config.credentials import bearer_module, login
from isthmus.config.places import nearest
from isthmus.config.substitute import Missing, Providers, Resolved, shown

_MECHANISMS = {"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"}
_KINDS = ("tls", *_MECHANISMS, "oauth", "custom")


def trust(cluster: dict[str, Any], providers: Providers) -> dict[str, str]:
    """Client properties of `tls`. Without certificates of its own, those that the system trusts count."""
    tls = cluster.get("tls")
    if tls is None:
        return {}
    listed = tls.get("trustedCertificates") if isinstance(tls, dict) else "no mapping"
    if not isinstance(listed, list | None):
        raise Missing("`tls` has to be a mapping, its `trustedCertificates` a list", "write `tls: {}` for none")
    certificates = [one for entry in listed or () for one in _certificates(entry, providers)]
    if not certificates:
        return {"security.protocol": "SSL"}
    pem = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _joined(certificates)}
    return {"security.protocol": "SSL", **pem}


def identity(cluster: dict[str, Any], providers: Providers) -> dict[str, str]:
    """Client properties of `authentication`; Missing if a secret is not there, or its kind is not known."""
    given, tls = cluster.get("authentication"), cluster.get("tls") is not None
    if given is None:
        return {}
    kind = str(given.get("type")) if isinstance(given, dict) else "none"
    if kind == "tls":
        return {"security.protocol": "SSL", **_own_certificate(given, providers)}
    if kind == "custom":
        return _custom(given, tls=tls)
    if kind == "oauth":
        return _oauth(given, providers, tls=tls)
    if kind in _MECHANISMS:
        password = _of_secret(given, "passwordSecret", "password", providers)
        return login(_MECHANISMS[kind], _user(given), password, tls=tls)
    raise Missing(f"authentication of type `{kind}` is not supported", nearest(kind, _KINDS))


def _certificates(entry: Any, providers: Providers) -> list[str]:
    name = str(entry.get("secretName", "")) if isinstance(entry, dict) else ""
    if not name:
        raise Missing("a trusted certificate needs a `secretName`", "add `secretName` and `certificate`")
    if "certificate" in entry:
        return [_secret(name, str(entry["certificate"]), providers)]
    pattern = str(entry.get("pattern", "*.crt"))
    keys = [key for key in _keys(name, providers) if fnmatch.fnmatchcase(key, pattern)]
    if not keys:
        text = f"the secret `{name}` has no key that matches `{pattern}`"
        raise Missing(text, "name the folder of secrets: --secrets DIR")
    return [_secret(name, key, providers) for key in keys]


def _keys(name: str, providers: Providers) -> list[str]:
    folder = providers.secrets / name if providers.secrets is not None and name not in (".", "..") else None
    if folder is None or "/" in name or not folder.is_dir():
        return []
    return sorted(file.name for file in folder.iterdir() if file.is_file())


def _own_certificate(given: dict[str, Any], providers: Providers) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _of_secret(given, "certificateAndKey", "certificate", providers),
        "ssl.keystore.key": _of_secret(given, "certificateAndKey", "key", providers),
    }


def _oauth(given: dict[str, Any], providers: Providers, *, tls: bool) -> dict[str, str]:
    """Client credentials; the other ways that Strimzi's own library has are refused by their name."""
    for other in ("accessToken", "refreshToken", "passwordSecret", "clientAssertion", "disableTlsHostnameVerification"):
        if given.get(other):
            raise Missing(f"`authentication.{other}` is not supported", "client credentials are: `clientSecret`")
    url, client = given.get("tokenEndpointUri"), given.get("clientId")
    if not isinstance(url, str) or not isinstance(client, str):
        raise Missing("authentication of type `oauth` needs `tokenEndpointUri` and `clientId`", "add them")
    scope = {"sasl.oauthbearer.scope": str(given["scope"])} if given.get("scope") else {}
    certificates = [
        one for entry in given.get("tlsTrustedCertificates") or () for one in _certificates(entry, providers)
    ]
    trusted = {"ssl.truststore.certificates": " ".join("\n".join(certificates).split("\n"))} if certificates else {}
    return {
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": client,
        "sasl.oauthbearer.client.credentials.client.secret": _of_secret(given, "clientSecret", "key", providers),
        "sasl.jaas.config": bearer_module(trusted),
        **scope,
    }


def _custom(given: dict[str, Any], *, tls: bool) -> dict[str, str]:
    """What stands in `config` are client properties already."""
    sasl = "SASL_" if given.get("sasl") is True else ""
    config = given.get("config")
    if not isinstance(config, dict | None):
        raise Missing("`authentication.config` has to be a mapping")
    own = {str(k): v if isinstance(v, str) else str(v).lower() for k, v in (config or {}).items()}
    return {"security.protocol": f"{sasl}{'SSL' if tls else 'PLAINTEXT'}", **own}


def _user(given: dict[str, Any]) -> str:
    user = given.get("username")
    if not isinstance(user, str) or not user:
        raise Missing(f"authentication of type `{given.get('type')}` needs a `username`", "add it")
    return user


def _of_secret(given: dict[str, Any], part: str, key: str, providers: Providers) -> str:
    found = given.get(part)
    name, file = (found.get("secretName"), found.get(key)) if isinstance(found, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(file, str):
        raise Missing(f"`authentication.{part}` needs `secretName` and `{key}`", "add them")
    return _secret(name, file, providers)


def _secret(name: str, key: str, providers: Providers) -> str:
    return Resolved(providers.secret(name, key), f"${{secrets:{name}:{key}}}")


def _joined(values: list[str]) -> str:
    return Resolved("\n".join(values), "\n".join(map(shown, values)))
