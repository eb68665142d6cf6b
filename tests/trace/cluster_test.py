"""`polyverso trace --explain` and the merged file, of real clusters with one slow worker."""

import json
import os
import re
import socket
import subprocess
import sys
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


def trace_of(pid, *words):
    return subprocess.run(["polyverso", "trace", str(pid), *words], check=True, timeout=60, capture_output=True, text=True)


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
