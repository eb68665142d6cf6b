"""A dashboard as a process, and statuses to show."""

import http.client
import json
import os
import signal
import subprocess
import urllib.parse

import pytest

COMMAND = os.environ.get("POLYVERSO_COMMAND", "polyverso")


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
