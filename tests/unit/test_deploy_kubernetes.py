"""Manifests in deploy/k8s: Kubernetes' own schemas judge the core kinds, small ones of ours the kinds of operators."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has no stubs
import kubernetes_validate  # type: ignore[import-untyped]  # likewise
import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
K8S = DEPLOY / "k8s"
VERSION = "1.31"
CORE = {"v1", "apps/v1", "rbac.authorization.k8s.io/v1", "networking.k8s.io/v1"}
TEXT: dict[str, Any] = {"type": "string"}
LABELS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
RESTRICTED = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def documents(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


OBJECTS = [
    (path.name, each) for path in sorted(K8S.glob("*.yaml")) if path.name != "flow.yaml" for each in documents(path)
]


def _crd(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"type": "object", "required": ["name", "namespace"]}
    return {
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "properties": {"kind": {"const": kind}, "metadata": metadata, "spec": spec, "apiVersion": TEXT},
        "additionalProperties": False,
    }


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


_MOUNTS = {"type": "array", "items": _closed(["name", "mountPath"], name=TEXT, mountPath=TEXT)}
_PORT = _closed(["name", "containerPort"], name=TEXT, containerPort={"type": "integer"}, protocol=TEXT)
_POD = {
    "cores": {"type": "integer", "minimum": 1},
    "memory": TEXT,
    "memoryOverhead": TEXT,
    "serviceAccount": TEXT,
    "labels": LABELS,
    "podSecurityContext": {"type": "object"},
    "securityContext": {"type": "object"},
    "envSecretKeyRefs": {"type": "object", "additionalProperties": _closed(["name", "key"], name=TEXT, key=TEXT)},
    "ports": {"type": "array", "items": _PORT},
    "volumeMounts": _MOUNTS,
}
_ENDPOINT = _closed(["port"], port=TEXT, path=TEXT, interval=TEXT, scrapeTimeout=TEXT)
_RULE = _closed(["alert", "expr"], alert=TEXT, expr=TEXT, labels=LABELS, annotations=LABELS, **{"for": TEXT})
_GROUP = _closed(["name", "rules"], name=TEXT, rules={"type": "array", "items": _RULE})
CRDS = {
    "PodMonitor": _crd(
        "PodMonitor",
        _closed(
            ["selector", "podMetricsEndpoints"],
            selector=_closed([], matchLabels=LABELS),
            podMetricsEndpoints={"type": "array", "items": _ENDPOINT, "minItems": 1},
        ),
    ),
    "PrometheusRule": _crd("PrometheusRule", _closed(["groups"], groups={"type": "array", "items": _GROUP})),
    "SparkApplication": _crd(
        "SparkApplication",
        _closed(
            ["type", "mode", "sparkVersion", "mainApplicationFile", "driver", "executor"],
            type={"enum": ["Java", "Python", "Scala", "R"]},
            mode={"enum": ["cluster", "client"]},
            pythonVersion={"enum": ["2", "3"]},
            sparkVersion=TEXT,
            image=TEXT,
            mainApplicationFile=TEXT,
            arguments={"type": "array", "items": TEXT},
            restartPolicy=_closed(["type"], type={"enum": ["Never", "OnFailure", "Always"]}),
            sparkConf=LABELS,
            volumes={"type": "array", "items": {"type": "object", "required": ["name"]}},
            driver=_closed([], **_POD),
            executor=_closed([], instances={"type": "integer"}, **_POD),
        ),
    ),
}


@pytest.mark.parametrize(("file", "document"), OBJECTS, ids=[f"{file}: {each['kind']}" for file, each in OBJECTS])
def test_manifests_are_what_their_schemas_ask_for(file: str, document: dict[str, Any]) -> None:
    if document["apiVersion"] in CORE:
        kubernetes_validate.validate(document, VERSION, strict=True)
    elif document["kind"] != "Kustomization":
        jsonschema.validate(document, CRDS[document["kind"]])
    assert document["kind"] in ("Namespace", "Kustomization", "Pod") or document["metadata"]["namespace"] == "isthmus"


def test_the_operators_rules_are_the_alerts() -> None:
    (alerts,), (rule,) = documents(DEPLOY / "monitoring/alerts.yaml"), documents(K8S / "prometheusrule.yaml")
    assert rule["spec"] == alerts


def test_the_kustomization_names_what_is_there() -> None:
    (found,) = documents(K8S / "kustomization.yaml")
    named = [*found["resources"], *(name for each in found["configMapGenerator"] for name in each["files"])]
    assert [name for name in named if not (K8S / name).is_file()] == []
    assert {path.name for path in K8S.glob("*.yaml")} - set(named) == {"kustomization.yaml", "sparkapplication.yaml"}


def _object(kind: str, file: str) -> dict[str, Any]:
    (found,) = [each for name, each in OBJECTS if (name, each["kind"]) == (file, kind)]
    return dict(found)


def test_pods_are_closed_and_labels_lead_to_each_other() -> None:
    driver = _object("Deployment", "driver.yaml")["spec"]["template"]
    executor = _object("Pod", "executor.yaml")
    for pod in (driver, executor):
        assert pod["spec"]["securityContext"].items() >= RESTRICTED.items()
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert all(each["secret"]["defaultMode"] == 0o400 for each in pod["spec"]["volumes"] if "secret" in each)
    ports = {port["name"]: port["containerPort"] for port in driver["spec"]["containers"][0]["ports"]}
    monitor = _object("PodMonitor", "podmonitor.yaml")["spec"]
    assert monitor["podMetricsEndpoints"][0]["port"] in ports
    wanted = driver["metadata"]["labels"]
    for selector in (monitor["selector"]["matchLabels"], _object("Service", "driver.yaml")["spec"]["selector"]):
        assert selector.items() <= wanted.items()
    policies = {each["metadata"]["name"]: each["spec"] for _, each in OBJECTS if each["kind"] == "NetworkPolicy"}
    assert policies["isthmus-driver"]["podSelector"]["matchLabels"] == wanted
    assert policies["isthmus-executor"]["podSelector"]["matchLabels"] == executor["metadata"]["labels"]
    opened = {port["port"] for rule in policies["isthmus-driver"]["ingress"] for port in rule["ports"]}
    assert opened == set(ports.values())


def test_sparks_version_is_the_one_that_is_locked() -> None:
    locked = re.search(r"^pyspark==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert locked is not None
    assert _object("SparkApplication", "sparkapplication.yaml")["spec"]["sparkVersion"] == locked[1]
