"""A real etcd, of one member, for tests."""

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from ports import free_ports


def is_installed():
    return shutil.which("etcd") is not None


class Etcd:
    """Started with its data in a folder of its own. host: a hosts.Host in whose network it runs; None: this machine's loopback."""

    def __init__(self, host=None, tls=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="etcd-"))
        self.host, self.tls = host, tls
        self.address = "127.0.0.1" if host is None else host.address
        self.port = free_ports(2)
        self.process = None

    @property
    def endpoint(self):
        return f"{self.address}:{self.port}"

    def keeper(self, name):
        """The setting of a cluster of this name."""
        return f"etcd://{self.endpoint}/{name}"

    def start(self):
        scheme = "https" if self.tls else "http"
        client, peer = f"{scheme}://{self.endpoint}", f"http://127.0.0.1:{self.port + 1}"
        command = [
            "etcd", "--data-dir", str(self.folder / "data"), "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        ]
        if self.tls:
            command += ["--cert-file", self.tls["cert"], "--key-file", self.tls["key"]]
        inside = [] if self.host is None else self.host.inside
        with open(self.folder / "log", "w", encoding="utf-8") as log:  # a new one: the former start's must not count
            self.process = subprocess.Popen([*inside, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while "ready to serve client requests" not in (self.folder / "log").read_text():
            assert self.process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.02)
        return self

    def call(self, path, **body):
        """The answer to a request to the gateway."""
        request = urllib.request.Request(f"http://{self.endpoint}/v3/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def leases(self):
        return [lease["ID"] for lease in self.call("lease/leases").get("leases", [])]

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def wipe(self):
        """Loses its data, while it does not run."""
        shutil.rmtree(self.folder / "data")

    def end(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
