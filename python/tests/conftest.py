"""Fixtures: clusters of one in this process, and clusters of Python processes."""

import os
import pathlib
import socket
import subprocess
import sys
import textwrap

import pytest

import polyverso

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests"))  # ports.py

for name in [key for key in os.environ if key.startswith("POLYVERSO_")]:
    del os.environ[name]


@pytest.fixture
def node():
    with polyverso.init() as node:
        yield node


@pytest.fixture
def sync_node():
    with polyverso.init(sync=True) as node:
        yield node


class Cluster:
    """A cluster whose processes run scripts. Rank 0 inherits the listening socket, which avoids a race for the port."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.processes = []

    def start(self, script, nodes, **settings):
        rank = len(self.processes)
        environment = dict(os.environ, POLYVERSO_NODES=str(nodes), POLYVERSO_RANK=str(rank), **settings)
        environment["POLYVERSO_MASTER"] = f"127.0.0.1:{self._listener.getsockname()[1]}"
        descriptors = [self._listener.fileno()] if rank == 0 else []
        if rank == 0:
            environment["POLYVERSO_LISTEN_FD"] = str(self._listener.fileno())
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", textwrap.dedent(script)], env=environment, pass_fds=descriptors, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    def close(self):
        self._listener.close()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def cluster():
    cluster = Cluster()
    yield cluster
    cluster.close()
