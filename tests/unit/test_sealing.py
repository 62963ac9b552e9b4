"""Secrets on their way to executors: sealed, or not sent at all."""

from __future__ import annotations

import base64
import pickle

import pytest

from isthmus.engine.masters import refuse_unfit
from isthmus.errors import MachineError
from isthmus.model import Cluster, Flow
from isthmus.security import SEAL_VARIABLE, Login, Secret, Security, Tunnel, holds_secret

HUSH = "hush-hush"
LOGIN = Login(mechanism="PLAIN", user="ada", password=Secret(HUSH))
SECURED = Security(login=LOGIN)
DUG = Security(tunnel=Tunnel(host="far", port=7443, secrets=(Secret(HUSH),)))
MASTER = "yarn"


def _flow(security: Security) -> Flow:
    east = Cluster(alias="east", bootstrap=("east:9092",), security=security)
    return Flow(source=east, target=Cluster(alias="west", bootstrap=("west:9092",)))


def test_a_secret_is_found_wherever_it_is() -> None:
    assert [holds_secret(each) for each in (SECURED, DUG, Security(), LOGIN)] == [True, True, False, True]


@pytest.mark.parametrize("security", [SECURED, DUG])
def test_a_cluster_without_the_key_gets_no_secrets(security: Security, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEAL_VARIABLE, raising=False)
    with pytest.raises(MachineError) as caught:
        refuse_unfit(MASTER, [_flow(security)])
    assert caught.value.code == "SEAL"
    assert SEAL_VARIABLE in caught.value.hint
    assert HUSH not in f"{caught.value} {caught.value.hint}"


def test_what_has_no_secrets_a_key_or_encryption_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEAL_VARIABLE, raising=False)
    refuse_unfit(MASTER, [_flow(Security())])
    refuse_unfit("local[2]", [_flow(SECURED)])
    encrypted = {"spark.network.crypto.enabled": "true", "spark.io.encryption.enabled": "true"}
    refuse_unfit(MASTER, [_flow(SECURED)], encrypted)
    monkeypatch.setenv(SEAL_VARIABLE, base64.b64encode(b"k" * 32).decode())
    refuse_unfit(MASTER, [_flow(SECURED)])
    assert HUSH.encode() not in pickle.dumps(_flow(SECURED)), "with a key, it is sealed"
