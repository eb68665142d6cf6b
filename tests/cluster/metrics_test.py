"""Metrics and traces of real clusters, read with Prometheus's own parser and over HTTP, also by malicious clients."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from conftest import COMMAND
from ports import free_ports

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:  # this interpreter does not see Debian's packages; python3-prometheus-client is pure Python
    sys.path.append("/usr/lib/python3/dist-packages")
    from prometheus_client.parser import text_string_to_metric_families

WORK = """
node = pv.init()
table = node.array(1000, name='a "quoted"\\\\table', updater="adagrad rate=0.1")
sums = node.array(64, name="in step", staleness=0)
for i in range(20):
    table.add(np.ones(1000))
    table.get()
    sums.add(np.ones(64))
    sums.get()
table.add(np.ones(3), rows=[1, 2, 3])
node.barrier()
say("worked")
if wait_for_word() == "metrics":
    say("metrics", node.metrics().encode().hex())
    wait_for_word()
node.shutdown()
"""


def fetch(port, path="/metrics"):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def parse(text):
    """{name: {labels: value}} of all samples. Checks each family."""
    samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), (family.name, family.type)
        assert family.name.startswith(("polyverso_", "process_")), family.name
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total"), sample.name
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in samples.setdefault(sample.name, {}), (sample.name, labels)
            samples[sample.name][labels] = sample.value
    return samples


def total(samples, name, **labels):
    wanted = set(labels.items())
    return sum(value for have, value in samples[name].items() if wanted <= set(have))


def port_of(node):
    return int(node.hear("metrics at http://").rsplit(":", 1)[1].split("/")[0])


@pytest.fixture
def working(cluster):
    """Two workers and a server, each with metrics on a free port: (nodes, ports)."""
    job = cluster(2, 1, metrics=0, log_level="info")
    nodes = [job.python(0, WORK), job.python(1, WORK), job.server(0)]
    ports = [port_of(node) for node in nodes]
    for node in nodes[:2]:
        node.hear("worked", 60)
    yield nodes, ports
    for node in nodes[:2]:
        node.tell("end")
    for node in nodes:
        node.ends()


def test_metrics_say_what_was_done(working):
    nodes, ports = working
    worker, other, server = (parse(fetch(port)[0]) for port in ports)
    name = 'a "quoted"\\table'
    assert total(worker, "polyverso_table_calls_total", table=name, call="add") == 21
    assert total(worker, "polyverso_table_calls_total", table=name, call="get") == 20
    assert total(worker, "polyverso_table_call_bytes_total", table=name, call="add") == 20 * 4000 + 3 * 4
    assert total(worker, "polyverso_table_calls_total", table="in step", path="message") == 40
    assert worker["polyverso_call_seconds_count"][(("call", "add"),)] == 41
    assert worker["polyverso_call_seconds_bucket"][(("call", "add"), ("le", "+Inf"))] == 41
    # The bytes sent by one side equal those received by the other. The worker's last message may still be in flight.
    sent, received = total(worker, "polyverso_peer_sent_bytes_total", peer="2"), total(server, "polyverso_peer_received_bytes_total", peer="0")
    assert 40 * 64 * 4 < sent and abs(sent - received) < 4096
    assert total(server, "polyverso_requests_total", kind="Change") >= 2 * 41
    assert server["polyverso_table_stored_rows"][(("table", name),)] == 1000
    assert server["polyverso_table_memory_bytes"][(("part", "states"), ("table", name))] >= 4000
    assert total(server, "polyverso_gate_wait_seconds_count", request="get") == 2 * 20
    assert total(server, "polyverso_gate_wait_seconds_count", request="change") == 2 * 20
    assert server["polyverso_requests_gated"][()] == 0
    assert total(server, "polyverso_members", state="here") == 3
    assert set(dict(labels)["peer"] for labels in server["polyverso_peer_silence_seconds"]) == {"0", "1"}
    assert server["polyverso_node_info"][(("mode", "async"), ("rank", "2"), ("server", "0"), ("worker", ""))] == 1
    assert other["polyverso_loop_busy_seconds_total"][()] > 0
    for samples in (worker, other, server):
        assert samples["process_resident_memory_bytes"][()] > 1 << 20
        assert samples["polyverso_uptime_seconds"][()] >= samples["polyverso_loop_busy_seconds_total"][()]


def test_counters_only_grow_and_the_function_tells_the_same(working):
    nodes, ports = working
    before = parse(fetch(ports[0])[0])
    nodes[0].tell("metrics")
    told = parse(bytes.fromhex(nodes[0].hear("metrics ").split()[-1]).decode())
    assert set(before) == set(told)
    for name, samples in before.items():
        if name.endswith("_total"):
            for labels, value in samples.items():
                assert told[name][labels] >= value, (name, labels)


def test_other_paths(working):
    _, ports = working
    assert fetch(ports[2], "/healthz")[0] == "ok\n"
    assert fetch(ports[2])[1].startswith("text/plain; version=0.0.4")
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(ports[2], "/etc/passwd")
    assert refused.value.code == 404
    request = urllib.request.Request(f"http://127.0.0.1:{ports[2]}/metrics", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    assert refused.value.code == 405


def open_descriptors(node):
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


def test_those_who_mean_no_good(working):
    nodes, ports = working
    server, port = nodes[2], ports[2]
    silent = [b"", b"GET /metrics HTTP/1.1\r\nX: "]  # and send nothing more
    loud = [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 50_000 + b"\r\n",
        b"GET /metrics HTTP/1.1\r\nRange: bytes=" + b"0-0," * 900 + b"0-0\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nRange: bytes=" + b"0" * 3900 + b"\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n" + b"x" * 100_000,
        b"\x16\x03\x01" + bytes(range(256)) * 8,
        b"\n" * 5000,
    ]
    before, kept = open_descriptors(server), 2  # descriptors that the loop keeps for waiting threads
    begun = time.monotonic()
    for words in loud:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            try:
                connection.sendall(words)
                while connection.recv(65536):
                    pass
            except OSError:
                pass  # the server has closed the connection
    waiting = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in silent]
    for connection, words in zip(waiting, silent):
        connection.sendall(words)
    assert "polyverso_build_info" in fetch(port)[0]  # requests behind the silent clients are served in the end
    assert open_descriptors(server) <= before + 1 + kept  # one client is served at a time
    for connection in waiting:
        connection.close()
    assert time.monotonic() - begun < 90
    deadline = time.monotonic() + 20
    while open_descriptors(server) > before + kept:
        assert time.monotonic() < deadline, "descriptors are left over"
        time.sleep(0.05)


def test_a_slow_client_does_not_hold_up_the_end(cluster):
    job = cluster(1, 1, metrics=0, log_level="info")
    worker = job.python(0, "node = pv.init()\nsay('here')\nwait_for_word()\nnode.shutdown()")
    server = job.server(0)
    port_of(worker)
    port = port_of(server)
    worker.hear("here")
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        worker.tell("end")
        worker.ends()
        server.ends()


def test_a_port_that_is_taken_is_an_error(cluster):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        job = cluster(1, 0, metrics=taken.getsockname()[1])
        worker = job.python(0, "attempt(pv.init)")
        ending = worker.hear_attempt()[1]
        assert "MV_EADDRINUSE" in ending or "can't listen at 127.0.0.1" in ending
        worker.ends()


@pytest.mark.parametrize("metrics", ["http", ":9", "127.0.0.1:", "127.0.0.1:99999", "-1"])
def test_a_nonsense_address_is_an_error(cluster, metrics):
    worker = cluster(1, 0, metrics=metrics).python(0, "attempt(pv.init)")
    assert f"metrics={metrics}" in worker.hear_attempt()[1]
    worker.ends()


def test_nobody_listens_who_was_not_asked_to(cluster):
    worker = cluster(1, 0).python(0, """
node = pv.init()
maps = open("/proc/self/maps").read()
say("modules", "libpolyverso-http" in maps, "libcpp-httplib" in maps)
node.shutdown()
""")
    assert worker.hear("modules").split()[1:] == ["False", "False"]
    worker.ends()


# ---------------------------------------------------------------- traces


def events_of(trace, *phases):
    return [event for event in trace["traceEvents"] if event["ph"] in phases]


def tracks_of(trace):
    """{(process, track): name}"""
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events_of(trace, "M") if e["name"] == "thread_name"}


def check_trace(trace, whole=True):
    tracks = tracks_of(trace)
    by_track = {}
    for slice_ in events_of(trace, "X"):
        assert slice_["dur"] >= 0
        by_track.setdefault((slice_["pid"], slice_["tid"]), []).append(slice_)
    assert set(by_track) <= set(tracks) and (not whole or set(by_track) == set(tracks))  # a one-to-one mapping
    for slices in by_track.values():  # slices do not overlap
        slices.sort(key=lambda slice_: slice_["ts"])
        for one, next_ in zip(slices, slices[1:]):
            assert one["ts"] + one["dur"] <= next_["ts"] + 0.001, (one, next_)
    spans = {}
    for event in events_of(trace, "b", "e"):
        spans.setdefault((event["cat"], event["id"]), []).append(event)
    for begin, end in spans.values():
        assert (begin["ph"], end["ph"]) == ("b", "e") and begin["ts"] <= end["ts"] and begin["name"] == end["name"]
    for flow in events_of(trace, "s", "f"):
        assert any(slice_["ts"] - 0.001 <= flow["ts"] <= slice_["ts"] + slice_["dur"] + 0.001 for slice_ in by_track[flow["pid"], flow["tid"]])
    return tracks, by_track, spans


def test_a_trace_has_a_track_for_each_peer_and_direction(working, tmp_path):
    _, ports = working
    output = tmp_path / "trace.json"
    words = [word for port in ports for word in ("--http", f"127.0.0.1:{port}")]
    subprocess.run([COMMAND, "trace", *words, "-o", output], check=True, timeout=60, stderr=subprocess.DEVNULL)
    trace = json.loads(output.read_text(encoding="utf-8"))
    tracks, by_track, spans = check_trace(trace)
    names = {e["pid"]: e["args"]["name"] for e in events_of(trace, "M") if e["name"] == "process_name"}
    assert names == {0: "worker 0 (rank 0)", 1: "worker 1 (rank 1)", 2: "server 0 (rank 2)"}
    of_server = {name for (process, _), name in tracks.items() if process == 2}
    assert {"to worker 0 (rank 0)", "from worker 0 (rank 0)", "to worker 1 (rank 1)", "from worker 1 (rank 1)"} <= of_server
    # Most messages are recorded at both ends, and arrive after they were sent.
    left = {e["id"]: e for e in events_of(trace, "s") if e["cat"] == "message"}
    arrived = {e["id"]: e for e in events_of(trace, "f") if e["cat"] == "message"}
    both = set(left) & set(arrived)
    assert len(both) > 0.8 * len(arrived) > 100
    assert all(left[flow]["pid"] != arrived[flow]["pid"] or left[flow]["pid"] == 0 for flow in both)
    late = [flow for flow in both if arrived[flow]["ts"] < left[flow]["ts"] - 1000]
    assert not late, "clocks of one machine differ by more than a millisecond"
    assert {event[0]["name"] for (kind, _), event in spans.items() if kind == "call"} >= {"add", "get"}
    assert {event[0]["name"] for (kind, _), event in spans.items() if kind == "gate"} >= {"Change", "Get"}


def test_a_trace_of_the_last_moment_is_part_of_the_whole(working):
    _, ports = working
    def ask(*words):
        return json.loads(subprocess.run([COMMAND, "trace", "--http", str(ports[2]), *words], check=True, timeout=60, capture_output=True, text=True).stdout)

    whole = ask()
    ends = [event["ts"] + event["dur"] for event in events_of(whole, "X")]
    part = ask("--seconds", str((max(ends) - min(ends)) / 2e6))
    assert 0 < len(events_of(part, "X")) < len(ends)
    check_trace(part, whole=False)


def test_a_trace_that_is_not_there(run):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    asked = subprocess.run([COMMAND, "trace", "--http", str(port)], capture_output=True, text=True, timeout=60)
    assert asked.returncode == 1 and re.search(rf"127.0.0.1:{port}.*", asked.stderr)
    status, _, error = run("-n", "1", "--", sys.executable, "-c",
                           "import polyverso as pv; n = pv.init(); n.trace()")
    assert status != 0 and "trace_events" in error


def test_a_cluster_that_serves_no_metrics_has_no_trace(start):
    job = start("run", "-n", "1", "--", sys.executable, "-c", "import polyverso as pv, time\nn = pv.init()\nprint('up', flush=True)\ntime.sleep(3)")
    job.read_until("up")
    asked = subprocess.run([COMMAND, "trace", str(job.process.pid)], capture_output=True, text=True, timeout=60)
    assert asked.returncode == 1 and "--metrics PORT" in asked.stderr
    job.finish()


def test_run_gives_each_rank_a_port(start):
    base = free_ports(2)
    job = start("run", "-n", "2", "--metrics", str(base), "--", sys.executable, "-c",
                "import polyverso as pv, sys\nn = pv.init()\nprint('up', n.rank, flush=True)\nsys.stdin.read() or __import__('time').sleep(3)\nn.shutdown()")
    job.read_until("up")
    job.read_until("up")
    trace = subprocess.run([COMMAND, "trace", str(job.process.pid)], capture_output=True, text=True, timeout=60)  # it finds the ports
    assert {e["pid"] for e in events_of(json.loads(trace.stdout), "X")} == {0, 1}, trace.stderr
    for rank in range(2):
        assert total(parse(fetch(base + rank)[0]), "polyverso_node_info", rank=str(rank)) == 1
    assert job.finish()[0] == 0
