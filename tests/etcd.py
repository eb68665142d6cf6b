"""A real etcd for tests, of one member or of several."""

import json
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

from ports import free_ports


def is_installed():
    return shutil.which("etcd") is not None


class Etcd:
    """Started with its data in a folder of its own. host: a hosts.Host in whose network it runs; None: this machine's loopback."""

    def __init__(self, host=None, tls=None, name="default", port=None, options=()):
        self.name, self.options = name, options
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="etcd-"))
        self.host, self.tls = host, tls
        self.address = "127.0.0.1" if host is None else host.address
        self.port = free_ports(2) if port is None else port  # the next one is for other members
        self.process = None

    @property
    def endpoint(self):
        return f"{self.address}:{self.port}"

    @property
    def peer(self):
        """How other members know it."""
        return f"{self.name}=http://127.0.0.1:{self.port + 1}"

    def keeper(self, name):
        """The setting of a cluster of this name."""
        return f"etcd://{self.endpoint}/{name}"

    def begin(self, members=None):
        """Starts it. members: the `peer` of all; None: it is alone."""
        scheme = "https" if self.tls else "http"
        client, peer = f"{scheme}://{self.endpoint}", self.peer.partition("=")[2]
        command = [
            "etcd", "--name", self.name, "--data-dir", str(self.folder / "data"), "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", ",".join(members or [self.peer]),
        ]
        command += self.options
        if self.tls:
            command += ["--cert-file", self.tls["cert"], "--key-file", self.tls["key"]]
        inside = [] if self.host is None else self.host.inside
        with open(self.folder / "log", "w", encoding="utf-8") as log:  # a new one: the former start's must not count
            self.process = subprocess.Popen([*inside, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self, members=None):
        self.begin(members)
        return self.wait_until_ready()

    def wait_until_ready(self):
        deadline = time.monotonic() + 20
        while "ready to serve client requests" not in (self.folder / "log").read_text():
            assert self.process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.02)
        return self

    def call(self, path, token=None, **body):
        """The answer to a request to the gateway."""
        headers = {} if token is None else {"Authorization": token}
        request = urllib.request.Request(f"http://{self.endpoint}/v3/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def leases(self):
        return [lease["ID"] for lease in self.call("lease/leases").get("leases", [])]

    def signal(self, number):
        self.process.send_signal(number)
        deadline = time.monotonic() + 10  # its threads stop one after another, and may answer meanwhile
        while number == signal.SIGSTOP and not self._is_stopped() and time.monotonic() < deadline:
            time.sleep(0.001)

    def _is_stopped(self):
        try:
            threads = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/stat")
            return all(thread.read_text().rpartition(") ")[2].startswith("T") for thread in threads)
        except FileNotFoundError:  # a thread has ended
            return False

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


class EtcdMembers:
    """A real etcd of several members on this machine's loopback."""

    def __init__(self, count=3):
        port = free_ports(2 * count)
        self.members = [Etcd(name=f"m{number}", port=port + 2 * number) for number in range(count)]

    def keeper(self, name, order=None):
        """The setting, with the endpoints in this order of the members."""
        return f"etcd://{','.join(each.endpoint for each in order or self.members)}/{name}"

    def start(self):
        for member in self.members:
            self.begin(member)
        for member in self.members:
            member.wait_until_ready()
        return self

    def begin(self, member):
        """Starts one of them, again if it was killed. It does not get ready unless most members run."""
        member.begin([each.peer for each in self.members])

    def leader(self):
        """The member that leads, as one of them says that runs."""
        for member in self.members:
            if member.process is not None:
                status = member.call("maintenance/status")
                if status.get("leader") == status["header"]["member_id"]:
                    return member
        raise AssertionError("no member leads")

    def end(self):
        for member in self.members:
            member.end()


class Proxy:
    """A TCP proxy between one process and an etcd. It can pass a write on, and then drop the answer and everything that follows."""

    def __init__(self, etcd):
        self.etcd = etcd
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.ends_with_write = threading.Event()  # the next write is the last message that arrives
        self.is_lost = threading.Event()
        self.sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def keeper(self, name):
        return f"etcd://127.0.0.1:{self.listener.getsockname()[1]}/{name}"

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(near)
            if self.is_lost.is_set():
                continue  # the connection is never answered
            far = socket.create_connection((self.etcd.address, self.etcd.port))
            self.sockets.append(far)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink, source is near), daemon=True).start()

    def _pass(self, source, sink, is_request):
        try:
            while data := source.recv(1 << 20):
                if self.is_lost.is_set():
                    return
                if is_request and self.ends_with_write.is_set() and b"request_put" in data:
                    self.is_lost.set()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one of the two has closed its connection

    def close(self):
        self.listener.close()
        for each in self.sockets:
            each.close()
