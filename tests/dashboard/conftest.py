"""Dashboards and clusters as processes, and statuses to show."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
import urllib.parse

import pytest

COMMAND = os.environ.get("POLYVERSO_COMMAND", "polyverso")

# Worker 3 sleeps as soon as the file STUCK exists. Whoever sees a loss stays, to be seen.
WORKER = """
import os, pathlib, time
import numpy as np
import polyverso as pv
from polyverso.group import Group
stuck = pathlib.Path(os.environ["STUCK"])
with pv.init() as node, Group(node) as group:
    table = node.array(1000, name=os.environ.get("TABLE", "weights"))
    for step in range(1000000):
        try:
            if node.worker_id == 3 and stuck.exists():
                time.sleep(3600)
            table.add(np.ones(1000, np.float32))
            table.get()
            group.allreduce(np.ones(10, np.float32))
            node.report("loss", 1 / (1 + step) + 0.01 * node.worker_id)
            time.sleep(0.02)
        except pv.Error:
            time.sleep(3600)
"""


class Dashboard:
    """A `polyverso dashboard`, and its link."""

    def __init__(self, *arguments, env=None, command=("dashboard",)):
        self.process = subprocess.Popen([COMMAND, *command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        self.link = self.process.stdout.readline().strip()
        assert self.link.startswith("http://127.0.0.1:"), self.link
        parts = urllib.parse.urlsplit(self.link)
        self.port = parts.port
        self.token = urllib.parse.parse_qs(parts.query)["token"][0]

    def ask(self, path, method="GET", **headers):
        """Returns (status, headers, body). A header's `_` stands for `-`; Host is correct unless given."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def cookie(self):
        """The cookie that the link gives."""
        status, headers, _ = self.ask(f"/?token={self.token}")
        assert status == 200
        return headers["Set-Cookie"].split(";")[0]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=20)


@pytest.fixture
def dashboard():
    """dashboard(*arguments): a Dashboard, ended after the test."""
    started = []

    def begin(*arguments, **more):
        started.append(Dashboard(*arguments, **more))
        return started[-1]

    yield begin
    for one in started:
        one.end()


@pytest.fixture
def shows(dashboard, tmp_path):
    """shows(status): a Dashboard of this status, a dictionary or a list."""

    def begin(status):
        path = tmp_path / "status.json"
        path.write_text(json.dumps(status))
        return dashboard("--from", str(path))

    return begin


class Cluster:
    """Workers and servers in sync mode. `words`: further ones for `polyverso run`; `more`: for the environment."""

    def __init__(self, folder, workers, servers, *words, **more):
        script = folder / "worker.py"
        script.write_text(WORKER)
        self.stuck = folder / "stuck"
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "STUCK": str(self.stuck), "OMP_NUM_THREADS": "1", **more}
        command = [COMMAND, "run", "-n", str(workers), "-s", str(servers), "--sync", "--keep-going", *words, "--"]
        command += [os.environ["WORKER_PYTHON"], str(script)]
        self.run = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def status(self):
        told = subprocess.run([COMMAND, "status", "--json"], env=self.environment, capture_output=True, timeout=30, check=False)
        return json.loads(told.stdout) if told.returncode == 0 else None

    def works(self):
        """Waits until each worker has reported, and returns the status."""
        deadline = time.monotonic() + 60
        while True:
            told = self.status()
            workers = [member for member in told["members"] if member["worker"] is not None] if told else []
            if workers and all(worker.get("reports") for worker in workers):
                return told
            assert time.monotonic() < deadline and self.run.poll() is None, told
            time.sleep(0.1)

    def end(self):
        for _ in range(2):
            if self.run.poll() is None:
                self.run.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.run.wait(5)
        self.run.kill()
        self.run.wait()


@pytest.fixture
def cluster(tmp_path):
    """cluster(workers, servers, *words, **more): a Cluster, ended after the test."""
    started = []

    def begin(workers, servers, *words, **more):
        started.append(Cluster(tmp_path, workers, servers, *words, **more))
        return started[-1]

    yield begin
    for one in started:
        one.end()


def member(rank, host="node1", **more):
    """A member that has answered."""
    told = {"rank": rank, "worker": rank, "server": rank, "host": host, "pid": 4711 + rank, "incarnation": f"{rank:016x}", "address": "127.0.0.1:1",
            "state": "here", "why": "", "silence_seconds": 0.1, "answered": True, "phase": "running", "uptime_seconds": 93.1, "metrics": None,
            "in_flight_bytes": 0, "sent_bytes": 10, "received_bytes": 10, "sent_bytes_per_second": 1000.0 * rank, "received_bytes_per_second": 500.0,
            "left_out": 0, "peers": []}
    return {**told, **more}


def status(members, **more):
    """The status of a cluster with these members."""
    told = {"sync": True, "epoch": 1, "seen_by": 0, "joining": False, "missing": "", "members": members, "tables": [], "groups": [], "waits": []}
    return {**told, **more}
