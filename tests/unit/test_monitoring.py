"""Alert rules, dashboard and the page about metrics use what is exported, and Prometheus' own tool accepts it all.

`promtool` is in Debian's package `prometheus`; where it is not installed the tests that need it say so.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from isthmus.cli.metrics import address
from isthmus.errors import ConfigError, MachineError
from isthmus.observe.health import Ages, CertificateHealth, ClusterHealth, FlowHealth, GroupsHealth, PartitionHealth
from isthmus.observe.metrics import Looked, Page, metrics_text
from isthmus.observe.window import Verdict
from isthmus.tunnel.counters import Counters

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
AMTOOL = shutil.which("amtool")
NAME = re.compile(r"\bisthmus_[a-z_]+")
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here (Debian's package prometheus has it)")


def _exported() -> str:
    """Metrics of a flow of which everything is known."""
    paper = CertificateHealth(whose="our own certificate", until=1.8e9)
    cluster = ClusterHealth(alias="a", answers=True, certificates=(paper,))
    ages = Ages(bounds_ms=(5, 10), counts=(1, 2, 3), sum_ms=70)
    stopped = PartitionHealth(
        topic="t", partition=0, verdict=Verdict.stopped, position=5, end=9, lag=4, lag_seconds=3.0, code="GAP"
    )
    flow = FlowHealth(
        flow="a->b",
        time=0.0,
        state="running",
        source=cluster,
        target=cluster,
        silent_s=1.0,
        heartbeat_age_s=0.5,
        throttle=1000,
        partitions=(stopped,),
        groups=GroupsHealth(kept=True, ago_s=1.0, groups=1, states={"exact": 1}),
        record_age=ages,
        latency=ages,
    )
    return metrics_text(Looked(flows=[flow]))


EXPORTED = _exported()
OF_TUNNELS = Counters().text()  # an end of a tunnel serves its own
ALL = EXPORTED + OF_TUNNELS
SAMPLES = {sample.name for family in text_string_to_metric_families(ALL) for sample in family.samples}
FAMILIES = {name for line in ALL.splitlines() if line.startswith("# TYPE ") for name in [line.split()[2]]}


def _expressions() -> Iterator[str]:
    board = json.loads((MONITORING / "grafana.json").read_text())
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])


def _promtool(*words: object, fed: str = "") -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *map(str, words)], input=fed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return list(group["rules"])


def test_everything_that_is_shown_or_alerted_upon_is_exported() -> None:
    used = {name for text in [*_expressions(), *(rule["expr"] for rule in _alerts())] for name in NAME.findall(text)}
    assert len(used) > 15
    assert used - SAMPLES == set()


def test_the_page_about_metrics_lists_them_all_and_no_others() -> None:
    rows = [line for line in (ROOT / "docs" / "metrics.md").read_text().splitlines() if line.startswith("| `isthmus_")]
    assert {name for row in rows for name in NAME.findall(row.split("|")[1])} == FAMILIES


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    cases = yaml.safe_load((MONITORING / "alerts-test.yaml").read_text())["tests"]
    fired = {each["alertname"] for case in cases for each in case["alert_rule_test"] if each.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in _alerts()}


@needs_promtool
def test_promtool_accepts_metrics_rules_and_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    _promtool("check", "metrics", fed=EXPORTED)
    _promtool("check", "metrics", fed=OF_TUNNELS)
    _promtool("check", "rules", MONITORING / "alerts.yaml")
    recorded = [{"record": f"x:{n}", "expr": expr.replace("$flow", ".*")} for n, expr in enumerate(_expressions())]
    rules = tmp_path / "expressions.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    _promtool("check", "rules", rules)


@needs_promtool
def test_alerts_fire_on_what_they_are_for_and_stay_quiet_otherwise() -> None:
    _promtool("test", "rules", MONITORING / "alerts-test.yaml")


def test_alertmanagers_file_names_alerts_that_exist_and_holds_no_address_of_a_webhook() -> None:
    text = (MONITORING / "alertmanager.yaml").read_text()
    assert set(re.findall(r"Isthmus\w+", text)) <= {rule["alert"] for rule in _alerts()}
    assert "hooks.slack" not in text
    assert yaml.safe_load(text)["global"] == {"slack_api_url_file": "/etc/alertmanager/slack-webhook"}


@pytest.mark.skipif(AMTOOL is None, reason="no amtool here (Debian's package prometheus-alertmanager has it)")
def test_amtool_accepts_the_routes_and_what_is_critical_goes_its_own_way() -> None:
    assert AMTOOL is not None
    checked = subprocess.run([AMTOOL, "check-config", MONITORING / "alertmanager.yaml"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "SUCCESS" in checked.stdout
    words = [AMTOOL, "config", "routes", "test", "--config.file", str(MONITORING / "alertmanager.yaml")]
    for severity, receiver in (("critical", "slack-critical"), ("warning", "slack")):
        found = subprocess.run([*words, f"severity={severity}"], capture_output=True, text=True)
        assert found.stdout.strip() == receiver, found


@pytest.mark.skipif(AMTOOL is None, reason="no amtool here (Debian's package prometheus-alertmanager has it)")
def test_a_message_to_slack_says_what_is_wrong_where_and_what_to_do(tmp_path: Path) -> None:
    labels = {"alertname": "IsthmusNoDriver", "flow": "a->b", "severity": "critical"}
    told = {"summary": "a->b is not copied: no driver", "description": "isthmus run FILE goes on"}
    alert = {"status": "firing", "labels": labels, "annotations": told}
    data = tmp_path / "alerts.json"
    data.write_text(json.dumps({"status": "firing", "commonLabels": labels, "alerts": [alert]}))

    def rendered(name: str) -> str:
        words = [f"--template.glob={MONITORING / 'slack.tmpl'}", f"--template.data={data}"]
        text = f'--template.text={{{{ template "isthmus.{name}" . }}}}'
        found = subprocess.run([str(AMTOOL), "template", "render", *words, text], capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        return found.stdout.strip()

    assert rendered("color") == "danger"
    assert rendered("title") == "1 firing: IsthmusNoDriver (a->b)"
    assert rendered("text").splitlines() == [":red_circle: a->b is not copied: no driver", "`isthmus run FILE goes on`"]


@pytest.mark.parametrize(
    ("text", "place"),
    [("9404", ("127.0.0.1", 9404)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:9404", ("::1", 9404))],
)
def test_metrics_are_served_on_loopback_unless_a_host_is_given(text: str, place: tuple[str, int]) -> None:
    assert address(text) == place


@pytest.mark.parametrize("text", ["here", "9404:", "1.2.3.4:99999", "::"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not"):
        address(text)


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MachineError, match=f"cannot listen on 127.0.0.1:{port}") as refused:
            Page("127.0.0.1", port, lambda: Looked(flows=[]))
    assert refused.value.code == "METRICS_PORT"
