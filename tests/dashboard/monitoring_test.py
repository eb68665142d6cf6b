"""packaging/prometheus and packaging/grafana: each metric is one that real processes export, and Prometheus accepts each expression."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import COMMAND

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"
RULES = PACKAGING / "prometheus" / "polyverso.rules.yml"
DASHBOARD = json.loads((PACKAGING / "grafana" / "polyverso.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
PROMTOOL = shutil.which("promtool")

NODES = """
import numpy as np
import polyverso as pv
from polyverso import gossip
node = pv.init()
node.report("loss", 0.5)
print(node.metrics())
adapter = gossip.ArrayAdapter([np.ones(3, np.float32)], "a", {"nodes": [{"name": "a", "host": "127.0.0.1", "port": 0}]})
print(adapter.gossip.metrics)
adapter.close()
node.shutdown()
"""
# Two workers, of which one is lost; a server that holds requests back; and a loss that is not a number.
ALERTS = """
rule_files: [%s]
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - {series: 'polyverso_members{job="j", instance="a", state="lost"}', values: '0 0 0 0 1x20'}
      - {series: 'polyverso_requests_gated{job="j", instance="s"}', values: '0 3x20'}
      - {series: 'polyverso_gate_wait_seconds_count{job="j", instance="s", request="get"}', values: '0 5 5x20'}
      - {series: 'polyverso_requests_gated{job="j", instance="busy"}', values: '0 3x20'}
      - {series: 'polyverso_gate_wait_seconds_count{job="j", instance="busy", request="get"}', values: '0+5x20'}
      - {series: 'polyverso_reported{job="j", instance="a", name="loss"}', values: '0.5 NaN NaN NaN NaN NaN'}
    alert_rule_test:
      - {eval_time: 30s, alertname: PolyversoMemberLost}
      - eval_time: 2m
        alertname: PolyversoMemberLost
        exp_alerts:
          - exp_labels: {severity: critical, job: j}
            exp_annotations: {summary: "j: 1 processes of the cluster are lost", description: "`polyverso status` names them and the reasons."}
      - eval_time: 4m
        alertname: PolyversoRequestsStuck
        exp_alerts:
          - exp_labels: {severity: warning, job: j, instance: s}
            exp_annotations:
              summary: "s: 3 requests wait, and none has been let through for a minute"
              description: "A worker does not take its turn in a sync round or is too stale. `polyverso status` names it."
      - eval_time: 1m
        alertname: PolyversoReportedNotANumber
        exp_alerts:
          - exp_labels: {severity: warning, job: j, instance: a, name: loss}
            exp_annotations: {summary: "a reports loss as NaN", description: "The training has diverged, or divides by zero."}
"""


def names_in(text):
    return set(re.findall(r"\b(?:polyverso|process)_[a-z_]*[a-z]", text))


@pytest.fixture(scope="module")
def exported():
    """The names of all samples that processes can export."""
    command = [COMMAND, "run", "-n", "1", "--sync", "--", os.environ["WORKER_PYTHON"], "-c", NODES]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    text = ran.stdout
    names = set()
    for name, kind in re.findall(r"# TYPE (\S+) (\S+)", text):
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return names


def test_each_metric_is_exported(exported):
    rules = [line.split("expr:")[1] for line in RULES.read_text().splitlines() if "expr:" in line]
    assert len(rules) >= 8 and len(EXPRESSIONS) >= 15
    for text in [*rules, *EXPRESSIONS, DASHBOARD["templating"]["list"][1]["query"]]:
        assert names_in(text) and names_in(text) <= exported, (text, names_in(text) - exported)


def test_the_panels_do_not_overlap():
    cells = [(x, y) for panel in DASHBOARD["panels"] for place in [panel["gridPos"]]
             for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def promtool(*arguments):
    told = subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_accepts_the_rules_and_fires_them(tmp_path):
    promtool("check", "rules", RULES)
    (tmp_path / "alerts.yml").write_text(ALERTS % RULES)
    promtool("test", "rules", tmp_path / "alerts.yml")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")
def test_prometheus_accepts_the_dashboards_expressions(tmp_path):
    rules = [{"record": f"panel:{i}", "expr": expression.replace("$__rate_interval", "1m")} for i, expression in enumerate(EXPRESSIONS)]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "panels.yml")
