"""Fixtures: clusters of one in this process, and clusters of Python processes."""

import os
import pathlib
import socket
import sys
import textwrap

import pytest

import polyverso

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests"))  # forks.py and ports.py
import forks  # noqa: E402

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
        process = forks.start(textwrap.dedent(script), environment, self._listener.fileno() if rank == 0 else None, own_stderr=True)
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
