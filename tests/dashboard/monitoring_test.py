"""packaging/prometheus and packaging/grafana: each metric is one that real processes export; a Prometheus that scrapes a real cluster fires the
alerts and answers the panels; and Grafana's own types know each field of the dashboard."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from conftest import COMMAND

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"
RULES = PACKAGING / "prometheus" / "polyverso.rules.yml"
DASHBOARD = json.loads((PACKAGING / "grafana" / "polyverso.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
WITHIN = 60  # seconds for what takes a few

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
      - {series: 'polyverso_parts{job="j", instance="a", backup="missing"}', values: '0 0 2 2 2 2'}
      - {series: 'polyverso_requests_gated{job="j", instance="s"}', values: '0 3x20'}
      - {series: 'polyverso_gate_wait_seconds_count{job="j", instance="s", request="get"}', values: '0 5 5x20'}
      - {series: 'polyverso_requests_gated{job="j", instance="busy"}', values: '0 3x20'}
      - {series: 'polyverso_gate_wait_seconds_count{job="j", instance="busy", request="get"}', values: '0+5x20'}
      - {series: 'polyverso_peer_silence_seconds{job="j", instance="a", peer="1"}', values: '0 4 0 0 0 0'}
      - {series: 'polyverso_reported{job="j", instance="a", name="loss"}', values: '0.5 NaN NaN NaN NaN NaN'}
    alert_rule_test:
      - {eval_time: 30s, alertname: PolyversoMemberLost}
      - eval_time: 2m
        alertname: PolyversoMemberLost
        exp_alerts:
          - exp_labels: {severity: critical, job: j}
            exp_annotations: {summary: "j: 1 processes of the cluster are lost", description: "`polyverso status` names them and the reasons."}
      - {eval_time: 15s, alertname: PolyversoNoBackup}
      - eval_time: 1m
        alertname: PolyversoNoBackup
        exp_alerts:
          - exp_labels: {severity: warning, job: j, instance: a, backup: missing}
            exp_annotations:
              summary: "a serves the tables of 2 servers, and nobody has a copy"
              description: "If it dies, too, they are lost. `polyverso status` shows who has a back-up."
      - eval_time: 4m
        alertname: PolyversoRequestsStuck
        exp_alerts:
          - exp_labels: {severity: warning, job: j, instance: s}
            exp_annotations:
              summary: "s: 3 requests wait, and none has been let through for a minute"
              description: "A worker does not take its turn in a sync round or is too stale. `polyverso status` names it."
      - eval_time: 15s
        alertname: PolyversoPeerSilent
        exp_alerts:
          - exp_labels: {severity: warning, job: j, instance: a, peer: 1}
            exp_annotations:
              summary: "a has not heard rank 1 for 4s"
              description: "The process is stopped, its machine is overloaded, or the network is interrupted."
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
    command = [COMMAND, "run", "-n", "1", "--servers", "2", "--replicas", "1", "--sync", "--", os.environ["WORKER_PYTHON"], "-c", NODES]
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


def test_a_silence_is_told_before_the_process_is_lost():
    (limit,) = re.findall(r"polyverso_peer_silence_seconds > (\d+)\n", RULES.read_text())
    assert int(limit) < 5  # the default of heartbeat_timeout_ms


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


def port_of(pid):
    """The port at which a process listens, once it does."""
    def listening():
        sockets = set()
        for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                sockets.add(os.readlink(descriptor))
            except FileNotFoundError:  # closed meanwhile
                pass
        for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                return int(fields[1].split(":")[1], 16)
        return None

    return wait_until(listening, "a port")


def wait_until(found, what):
    deadline = time.monotonic() + WITHIN
    while True:
        value = found()
        if value:
            return value
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Prometheus:
    """A Prometheus that scrapes and evaluates each second. Its rules are those of the package, `impatient`: with seconds for minutes."""

    def __init__(self, folder, targets):
        rules = RULES.read_text()
        (folder / "rules.yml").write_text(rules)
        (folder / "impatient.yml").write_text(re.sub(r"(?<=\[)1m(?=\])|(?<=for: )1m", "8s", rules).replace("name: poly", "name: impatient-poly"))
        settings = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(folder / "rules.yml"), str(folder / "impatient.yml")],
                    "scrape_configs": [{"job_name": "training", "static_configs": [{"targets": targets}]}]}
        (folder / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
        command = [PROMETHEUS, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                   "--web.listen-address=127.0.0.1:0", "--log.level=error"]
        self.process = subprocess.Popen(command, cwd=folder)
        self.address = f"http://127.0.0.1:{port_of(self.process.pid)}/api/v1/"

    def ask(self, path, **words):
        with urllib.request.urlopen(self.address + path + "?" + urllib.parse.urlencode(words), timeout=20) as answer:
            return json.load(answer)["data"]

    def is_up(self):
        try:
            targets = self.ask("targets")["activeTargets"]
        except (urllib.error.URLError, ConnectionError):  # it listens before it answers
            return False
        return len(targets) > 0 and all(target["health"] == "up" for target in targets)

    def shows(self, expression):
        return bool(self.ask("query", query=expression.replace("$__rate_interval", "10s").replace("$job", ".*"))["result"])

    def firing(self, name):
        return [alert["labels"] for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing" and alert["labels"]["alertname"] == name]

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=60)


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (Debian: prometheus)")
def test_a_prometheus_that_scrapes_a_cluster_fires_the_alerts(cluster, tmp_path):
    job = cluster(4, 1, "--metrics", "0")
    members = job.works()["members"]
    server = next(member for member in members if member["worker"] is None)
    watch = Prometheus(tmp_path, [member["metrics"] for member in members])
    try:
        wait_until(watch.is_up, "each process is scraped")
        groups = watch.ask("rules")["groups"]
        assert len(groups) == 4 and not [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")]
        # This job has no gossip and no checkpoints. A rate needs two samples of a process.
        wait_until(lambda: sum(map(watch.shows, EXPRESSIONS)) > len(EXPRESSIONS) / 2, "most panels show something")
        assert not watch.firing("PolyversoRequestsStuck") and not watch.firing("PolyversoMemberLost")
        job.stuck.touch()
        stuck = wait_until(lambda: watch.firing("PolyversoRequestsStuck"), "the alert that a worker is stuck")
        assert {alert["instance"] for alert in stuck} == {server["metrics"]}
        os.kill(server["pid"], signal.SIGKILL)
        wait_until(lambda: watch.firing("PolyversoMemberLost"), "the alert that a server is lost")
    finally:
        watch.end()


# What Grafana's panels cannot do without.
FIELDS = {"id": int, "type": str, "title": str, "gridPos": dict, "datasource": dict, "targets": list, "fieldConfig": dict}


def test_the_panels_have_what_grafana_needs():
    assert DASHBOARD["uid"] and DASHBOARD["title"] and DASHBOARD["schemaVersion"] >= 36
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "job"}
    for panel in DASHBOARD["panels"]:
        assert {name for name, kind in FIELDS.items() if not isinstance(panel.get(name), kind)} == set(), panel["title"]
        assert panel["type"] in ("stat", "timeseries", "table", "heatmap") and panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert set(panel["gridPos"]) == {"h", "w", "x", "y"} and {"defaults", "overrides"} <= set(panel["fieldConfig"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) and all(target["expr"] for target in panel["targets"])


def left_out(given, kept, path="dashboard"):
    """The places of what `kept` lacks or has otherwise."""
    if isinstance(given, dict):
        known = kept if isinstance(kept, dict) else {}
        return [place for name, value in given.items() for place in left_out(value, known.get(name), f"{path}.{name}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [place for i, value in enumerate(given) for place in left_out(value, kept[i], f"{path}[{i}]")]
    return [] if given == kept else [path]


def test_grafanas_own_types_know_each_field():
    """Grafana publishes its schema as these types, which are generated from it. They drop a field that they do not know."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="grafana-foundation-sdk is not installed (PyPI; Python 3.11)")
    from grafana_foundation_sdk.cog import encoder, plugins

    def kept(given):
        return json.loads(encoder.JSONEncoder(sort_keys=True).encode(models.Dashboard.from_json(given)))

    plugins.register_default_plugins()
    assert left_out(DASHBOARD, kept(DASHBOARD)) == []
    wrong = json.loads(json.dumps(DASHBOARD))
    wrong["panels"][0]["gridPosition"] = wrong["panels"][0].pop("gridPos")
    assert left_out(wrong, kept(wrong)) == ["dashboard.panels[0].gridPosition." + name for name in "hwxy"]
