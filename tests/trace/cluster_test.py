"""`polyverso trace --explain` and the merged file, of real clusters with one slow worker."""

import contextlib
import http.server
import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time

import pytest

SCRIPT = """
import sys, time
import numpy as np, polyverso
with polyverso.init(sync=sys.argv[1] == "table") as node:
    table = node.array(1000) if sys.argv[1] == "table" else None
    group = polyverso.Group(node) if sys.argv[1] == "group" else None
    x = np.ones(1000 if table is not None else 20000, np.float32)
    for turn in range(100000):
        time.sleep(0.05 if node.rank == 1 else 0.001)
        if group is not None:
            group.allreduce(x)
        else:
            table.add(x)
            table.get()
        if turn == 30:
            print("turned", flush=True)
"""

# The category of operations, and the parts of those that are large enough.
OPERATIONS = {"group": ("group", {"wait", "copy in", "reduce", "copy out"}), "group over tcp": ("group by messages", {"reduce", "gather"})}


@pytest.fixture(params=["table", "group", "group over tcp"])
def cluster(request, tmp_path):
    way, _, transport = request.param.partition(" over ")
    words = ["--set", f"transport={transport}"] if transport else []
    command = ["polyverso", "run", "-n", "3", "--metrics", "0", *words, "--", sys.executable, "-c", SCRIPT, way]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for _ in range(3):
        assert "turned" in job.stdout.readline()
    yield request.param, job.pid, tmp_path / "trace.json"
    job.terminate()
    job.communicate(timeout=60)


def trace_of(*words):
    return subprocess.run(["polyverso", "trace", *map(str, words)], check=True, timeout=60, capture_output=True, text=True)


def test_who_is_slow_is_named_and_the_arrows_lead_to_what_saw_a_change(cluster):
    way, pid, output = cluster
    said = trace_of(pid, "--explain", "-o", str(output)).stdout
    shares = dict(re.findall(r"^ {2}(\w+) +([\d.]+) %", said, re.MULTILINE))
    assert set(shares) == {"compute", "wait", "transfer", "apply"} and sum(map(float, shares.values())) == pytest.approx(100, abs=0.3)
    assert float(shares["wait"]) > 30, said
    assert "worker 1 (rank 1) holds up the others" in said, said
    assert said.count("\n") == 6
    events = json.loads(output.read_text(encoding="utf-8"))["traceEvents"]
    waits = [event["name"] for event in events if event["ph"] == "b" and event["cat"] == "wait"]
    if way == "table":
        assert waits.count("waits for worker 1 (rank 1)") > len(waits) / 2
        slices = {(event["pid"], event["tid"], event["ts"]): event for event in events if event["ph"] == "X"}
        seen = [event for event in events if event.get("cat") == "seen"]
        names = {(event["ph"], slices[event["pid"], event["tid"], event["ts"]]["name"]) for event in seen}
        assert names == {("s", "Change"), ("f", "Reply")}
    else:
        category, parts = OPERATIONS[way]
        begins = [event for event in events if event["ph"] == "b" and event["cat"] == category]
        ends = {(event["id"], event["name"], event["ts"]) for event in events if event["ph"] == "e" and event["cat"] == category}
        operations = {event["id"]: event for event in begins if "part" not in event["args"]}
        assert "allreduce" in {event["name"] for event in operations.values()} <= {"allreduce", "barrier", "allgather"}  # a group opens by one
        inside = [event for event in begins if "part" in event["args"] and event["id"] in operations]
        assert {event["name"] for event in inside} - {"more blocks"} == parts
        until = {operation: max(end for number, _, end in ends if number == operation) for operation in operations}
        for event in inside:  # drawn below its operation: same id, within its time
            operation = operations[event["id"]]
            assert operation["ts"] <= event["ts"] and (event["id"], operation["name"], until[event["id"]]) in ends


def test_without_a_file_only_words_are_printed(cluster):
    _, pid, output = cluster
    said = trace_of(pid, "--explain", "--seconds", "1")
    assert "{" not in said.stdout and said.stderr == "" and not output.exists()


# After three turns, worker 1 sleeps, and the others wait for it.
SLEEPS = SCRIPT.replace("0.05 if node.rank == 1", "600 if node.rank == 1 and turn == 3").replace("turn == 30", "turn == 2")


@pytest.mark.parametrize("way", ["table", "group", "group over tcp"])
def test_a_wait_that_goes_on_is_explained(way, tmp_path):
    kind, _, transport = way.partition(" over ")
    words = ["--set", f"transport={transport}"] if transport else []
    command = ["polyverso", "run", "-n", "2", "--metrics", "0", *words, "--", sys.executable, "-c", SLEEPS, kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        try:
            for _ in range(2):
                assert "turned" in job.stdout.readline()
            time.sleep(4)
            output = tmp_path / "trace.json"
            said = trace_of(job.pid, "--explain", "-o", str(output)).stdout
        finally:
            job.terminate()
    shares = {name: float(share) for name, share in re.findall(r"^ {2}(\w+) +([\d.]+) %", said, re.MULTILINE)}
    assert shares["wait"] > 25 and shares["compute"] < 75 and "worker 1 (rank 1) holds up the others" in said, said
    events = json.loads(output.read_text(encoding="utf-8"))["traceEvents"]
    going_on = [event for event in events if event["ph"] == "b" and event["args"].get("open")]
    waits = {(event["name"], event["args"]["waiting"]) for event in going_on if event["cat"] == "wait"}
    assert waits == {("waits for worker 1 (rank 1)", "worker 0 (rank 0)")}
    assert {event["pid"] for event in going_on if event["cat"] == "blocked"} == {0}


@contextlib.contextmanager
def serving(rank, seconds):
    """Serves the trace of a process with an event each 100 ms for so long. Gives the port."""
    events = [{"ph": "M", "pid": rank, "tid": 0, "name": "process_name", "args": {"name": f"worker {rank}"}}]
    events += [{"ph": "X", "pid": rank, "tid": 1, "ts": 1e5 * i, "dur": 10, "name": "Ping", "args": {}} for i in range(10 * seconds)]
    text = json.dumps({"traceEvents": events, "otherData": {"rank": rank, "host": "here", "origin_nanoseconds_since_1970": "0"}}).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield str(server.server_address[1])
        server.shutdown()


def test_the_last_seconds_are_those_that_all_processes_cover(tmp_path):
    output = tmp_path / "trace.json"
    with serving(0, 10) as long, serving(1, 5) as short:
        trace_of("--http", long, "--http", short, "--seconds", "2", "-o", str(output))
    events = [event for event in json.loads(output.read_text(encoding="utf-8"))["traceEvents"] if event["ph"] == "X"]
    for rank in (0, 1):
        assert 2.8e6 < min(event["ts"] for event in events if event["pid"] == rank) < 3.1e6


def test_a_process_without_an_answer_is_left_out(tmp_path):
    output = tmp_path / "trace.json"
    with serving(0, 1) as port, socket.create_server(("127.0.0.1", 0)) as closed:
        dead = str(closed.getsockname()[1])
        closed.close()
        said = trace_of("--http", port, "--http", dead, "-o", str(output)).stderr
        assert f"left out: http://127.0.0.1:{dead}/trace: " in said
        assert {event["pid"] for event in json.loads(output.read_text(encoding="utf-8"))["traceEvents"]} == {0}
        nobody = subprocess.run(["polyverso", "trace", "--http", dead], capture_output=True, text=True, timeout=60, check=False)
        assert (nobody.returncode, nobody.stdout) == (1, "") and "no process has given its events" in nobody.stderr


def test_a_full_disk_leaves_the_old_file(tmp_path):
    output = tmp_path / "trace.json"
    output.write_text("old", encoding="utf-8")
    with serving(0, 1) as port:
        # Without restore_signals SIGXFSZ stays ignored, as Python does it, and the write fails instead.
        told = subprocess.run(["polyverso", "trace", "--http", port, "-o", str(output)], capture_output=True, text=True, timeout=60, check=False,
                              restore_signals=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
    assert told.returncode == 1 and f"can't write {output}: File too large" in told.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"] and output.read_text(encoding="utf-8") == "old"


def test_a_forming_cluster_is_named_as_such():
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"127.0.0.1:{server.getsockname()[1]}"
        settings = {"NODES": 2, "RANK": 0, "MASTER": master, "SECRET": "forming", "LISTEN_FD": server.fileno(), "METRICS": 0}
        environment = dict(os.environ, **{f"POLYVERSO_{name}": str(value) for name, value in settings.items()})
        with subprocess.Popen([sys.executable, "-c", "import polyverso; polyverso.init()"], env=environment, pass_fds=[server.fileno()],
                              stderr=subprocess.DEVNULL) as first:
            try:
                for words in (["trace"], ["export", "--otlp", "http://127.0.0.1:1", "--once"]):
                    told = subprocess.run(["polyverso", *words, "--master", master], env={**os.environ, "POLYVERSO_SECRET": "forming"},
                                          capture_output=True, text=True, timeout=60, check=False)
                    assert told.returncode == 1 and "the cluster is forming: only 1 of 2 processes have arrived" in told.stderr, told.stderr
            finally:
                first.kill()


QUIET = """
import sys
import polyverso
with polyverso.init(metrics=0, heartbeat_timeout_ms=1000) as node:
    node.barrier()
    print("here", flush=True)
    sys.stdin.readline()
    node.barrier()
"""


def test_clocks_of_two_machines_are_compared_by_heartbeats(tmp_path):
    if subprocess.run(["unshare", "--uts", "hostname", "alpha"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a process can't have a host name of its own here")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        secret = tmp_path / "secret"
        secret.write_text("alpha and beta\n", encoding="utf-8")
        processes = []
        for rank, host in enumerate(["alpha", "beta"]):
            settings = {"NODES": 2, "RANK": rank, "MASTER": f"127.0.0.1:{port}", "SECRET": "alpha and beta", "LISTEN_FD": server.fileno()}
            environment = dict(os.environ, **{f"POLYVERSO_{name}": str(value) for name, value in settings.items() if rank == 0 or name != "LISTEN_FD"})
            command = ["unshare", "--uts", "sh", "-c", 'hostname "$1"; exec "$2" -c "$3"', "sh", host, sys.executable, QUIET]
            processes.append(subprocess.Popen(command, env=environment, pass_fds=[server.fileno()], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    try:
        assert [process.stdout.readline() for process in processes] == ["here\n", "here\n"]
        output = tmp_path / "trace.json"
        until = time.monotonic() + 60
        while True:  # until heartbeats have gone both ways
            words = ["--master", f"127.0.0.1:{port}", "--secret-file", str(secret), "-o", str(output)]
            said = subprocess.run(["polyverso", "trace", *words], check=True, timeout=60, capture_output=True, text=True).stderr
            (clock,) = json.loads(output.read_text(encoding="utf-8"))["otherData"]["clocks"]
            if clock["known"] or time.monotonic() > until:
                break
        assert (clock["rank"], clock["host"], clock["known"]) == (1, "beta", True)
        assert abs(clock["offset_us"]) <= clock["error_us"] + 100  # it is the same clock
        assert "on beta is" in said and "corrected" in said
    finally:
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0, 0]
