"""A lab cluster with every kind of listener: in clear, TLS, certificates of clients, each SASL mechanism.

    PLAINTEXT  the lab's own        SASL      SASL_PLAINTEXT: PLAIN, SCRAM
    TLS        SSL                  SASLTLS   SASL_SSL: PLAIN, SCRAM, OAUTHBEARER (unsecured tokens)
    MUTUAL     SSL, wants ours      BRIEF     SASL_SSL whose logins last two seconds
    EXPIRED    SSL, out of date     ELSEWHERE SSL, for another host

Owns the stores, users and passwords of such a cluster (`Doors`). SCRAM users are made when it runs (`add_users`).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from isthmus.lab import admin
from isthmus.lab.brokers import ClusterSpec, Listener
from isthmus.lab.identities import Authority, Issued

BRIEF_MS = 2_000
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES = "org.apache.kafka.common.security."


def _word() -> str:
    return secrets.token_hex(12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What a client of such a cluster has to know. `folder` holds its stores."""

    folder: Path
    authority: Authority = field(default_factory=Authority)
    user: str = "alice"
    password: str = field(default_factory=_word, repr=False)
    store_password: str = field(default_factory=_word, repr=False)

    def spec(self, name: str) -> ClusterSpec:
        self.folder.mkdir(parents=True, exist_ok=True)
        good = self._own(self.authority.issue("broker"), "broker")
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.trusted_pem())}
        expired = self._own(self.authority.issue("broker", expired=True), "expired")
        elsewhere = self._own(self.authority.issue("broker", ("elsewhere.example",)), "elsewhere")
        sasl = self._sasl("PLAIN", *_SCRAM)
        all_sasl = self._sasl("PLAIN", *_SCRAM, "OAUTHBEARER")
        brief = {"connections.max.reauth.ms": str(BRIEF_MS)}
        listeners = (
            Listener(),
            Listener(name="TLS", protocol="SSL", properties=good),
            Listener(name="MUTUAL", protocol="SSL", properties=good | trust | {"ssl.client.auth": "required"}),
            Listener(name="SASL", protocol="SASL_PLAINTEXT", properties=sasl),
            Listener(name="SASLTLS", protocol="SASL_SSL", properties=good | all_sasl),
            Listener(name="BRIEF", protocol="SASL_SSL", properties=good | all_sasl | brief),
            Listener(name="EXPIRED", protocol="SSL", properties=expired),
            Listener(name="ELSEWHERE", protocol="SSL", properties=elsewhere),
        )
        return ClusterSpec(name=name, listeners=listeners)

    def trusted_pem(self) -> Path:
        path = self.folder / "authority.pem"
        path.write_text(self.authority.pem())
        return path

    def add_users(self, bootstrap: str) -> None:
        """SCRAM credentials of the user; PLAIN has them from the start."""
        admin.add_scram_user(bootstrap, self.user, self.password, _SCRAM)

    def _own(self, issued: Issued, name: str) -> dict[str, str]:
        store = issued.pkcs12(self.folder / f"{name}.p12", self.store_password)
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(store),
            "ssl.keystore.password": self.store_password,
            "ssl.key.password": self.store_password,
        }

    def _sasl(self, *mechanisms: str) -> dict[str, str]:
        modules = {
            "PLAIN": f'{_MODULES}plain.PlainLoginModule required user_{self.user}="{self.password}";',
            "OAUTHBEARER": f"{_MODULES}oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";',
        } | dict.fromkeys(_SCRAM, f"{_MODULES}scram.ScramLoginModule required;")
        configs = {f"{each.lower()}.sasl.jaas.config": modules[each] for each in mechanisms}
        return {"sasl.enabled.mechanisms": ",".join(mechanisms), **configs}
