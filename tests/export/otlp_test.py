"""`polyverso export` sends what /metrics says, in OpenTelemetry's form."""

import contextlib
import http.server
import json
import queue
import re
import subprocess
import sys
import threading
import urllib.request

import pytest

SCRIPT = r"""
import sys
import numpy as np, polyverso
with polyverso.init() as node:
    table = node.array(100, name='a "hostile"\\name\n')
    for _ in range(10):
        table.add(np.ones(100))
        table.get()
    node.report("loss", 0.25)
    node.barrier()
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def collector():
    """Keeps the requests; answers with `status`."""
    requests = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            requests.put((self.path, dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(server.status)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.status, server.requests, server.url = 200, requests, f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@contextlib.contextmanager
def running_job():
    command = ["polyverso", "run", "-n", "2", "--metrics", "0", "--", sys.executable, "-c", SCRIPT]
    job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        for _ in range(2):
            assert "ready" in job.stdout.readline()
        yield job
    finally:
        job.terminate()
        job.communicate(timeout=60)


@pytest.fixture
def job():
    with running_job() as job:
        yield job


def export(*words):
    return subprocess.run(["polyverso", "export", *map(str, words)], timeout=60, capture_output=True, text=True, check=False)


def addresses(pid):
    status = json.loads(subprocess.run(["polyverso", "status", "--json", str(pid)], check=True, timeout=60, capture_output=True).stdout)
    return [member["metrics"] for member in status["members"]]


def attributes(entry):
    return {each["key"]: each["value"]["stringValue"] for each in entry["attributes"]}


def check_by_schema(body):
    """By the protocol's own definition, where Python has it."""
    try:
        from google.protobuf import json_format
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
    except ImportError:
        return
    json_format.Parse(body, metrics_service_pb2.ExportMetricsServiceRequest())  # refuses unknown fields and wrong types


def test_all_that_the_metrics_say_arrives(collector, job):
    done = export(job.pid, "--otlp", collector.url, "--once", "--header", "X-Token: a b", "--header", "X-Other: 7")
    assert (done.returncode, done.stderr) == (0, "")
    path, headers, body = collector.requests.get(timeout=60)
    assert (path, headers["Content-Type"], headers["X-Token"], headers["X-Other"]) == ("/v1/metrics", "application/json", "a b", "7")
    check_by_schema(body)
    resources = json.loads(body)["resourceMetrics"]
    assert [attributes(each["resource"])["service.instance.id"] for each in resources] == ["0", "1"]
    for resource, address in zip(resources, addresses(job.pid)):
        metrics = {metric["name"]: metric for metric in resource["scopeMetrics"][0]["metrics"]}
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        assert set(metrics) == set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        calls = metrics["polyverso_table_calls_total"]["sum"]
        assert calls["isMonotonic"] is True and calls["aggregationTemporality"] == 2
        adds = [point for point in calls["dataPoints"] if attributes(point)["call"] == "add"]
        assert sum(point["asDouble"] for point in adds) == 10
        assert {attributes(point)["table"] for point in adds} == {'a "hostile"\\name\n'}
        assert all(0 < int(point["startTimeUnixNano"]) < int(point["timeUnixNano"]) for point in adds)
        (reported,) = metrics["polyverso_reported"]["gauge"]["dataPoints"]
        assert reported["asDouble"] == 0.25 and attributes(reported)["name"] == "loss"
        for point in metrics["polyverso_call_seconds"]["histogram"]["dataPoints"]:
            assert len(point["bucketCounts"]) == len(point["explicitBounds"]) + 1 and point["explicitBounds"] == sorted(point["explicitBounds"])
            assert sum(map(int, point["bucketCounts"])) == int(point["count"])
        assert metrics["polyverso_uptime_seconds"]["unit"] == "s"


def test_it_goes_on_after_a_failure_and_ends_with_the_cluster(collector, job):
    collector.status = 503
    words = [str(job.pid), "--otlp", f"{collector.url}/own/path", "--interval", "0.1"]
    exporter = subprocess.Popen(["polyverso", "export", *words], stderr=subprocess.PIPE, text=True)
    try:
        assert collector.requests.get(timeout=60)[0] == "/own/path"
        assert "503" in exporter.stderr.readline()
        collector.status = 200
        for _ in range(3):
            collector.requests.get(timeout=60)
        job.stdin.write("\n\n")
        job.stdin.flush()
        job.terminate()
        job.wait(timeout=60)
        _, said = exporter.communicate(timeout=60)
        assert exporter.returncode == 0 and "no process answers any more" in said
    finally:
        exporter.kill()
        exporter.wait()


@pytest.mark.parametrize(("words", "says"), [
    (["--otlp", "localhost:4318", "--http", "1"], "expected one such as http://localhost:4318"),
    (["--otlp", "http://127.0.0.1:9", "--http", "1", "--header", "nothing"], "expected 'Name: value'"),
    (["--otlp", "http://127.0.0.1:9", "--http", "1", "--once"], "no process answers"),
    ([], "--otlp is required"),
])
def test_what_can_not_be_done_says_what_to_do(words, says):
    done = export(*words)
    assert done.returncode != 0 and says in done.stderr


def test_a_collector_that_is_not_there(job):
    done = export(job.pid, "--otlp", "http://127.0.0.1:9", "--once")
    assert done.returncode == 1 and "http://127.0.0.1:9" in done.stderr
