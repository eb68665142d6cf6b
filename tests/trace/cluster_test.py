"""`polyverso trace --explain` and the merged file, of real clusters with one slow worker."""

import json
import re
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
    x = np.ones(1000, np.float32)
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


@pytest.fixture(params=["table", "group", "group over tcp"])
def cluster(request, tmp_path):
    way, _, transport = request.param.partition(" over ")
    words = ["--set", f"transport={transport}"] if transport else []
    command = ["polyverso", "run", "-n", "3", "--metrics", "0", *words, "--", sys.executable, "-c", SCRIPT, way]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for _ in range(3):
        assert "turned" in job.stdout.readline()
    yield way, job.pid, tmp_path / "trace.json"
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
    elif "tcp" not in said:
        assert {event["name"] for event in events if event["ph"] == "b" and event["cat"] == "group"} <= {"allreduce", "barrier"}


def test_without_a_file_only_words_are_printed(cluster):
    _, pid, output = cluster
    said = trace_of(pid, "--explain", "--seconds", "1")
    assert "{" not in said.stdout and said.stderr == "" and not output.exists()
