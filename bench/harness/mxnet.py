"""MXNet 1.9.1, which contains ps-lite, in an environment of its own, because it needs an old NumPy."""

import os
import socket

from .environments import Environment
from .process import Broken, Process, started

MXNET = Environment("MXNet", "mxnet-venv", ("mxnet==1.9.1", "numpy<1.24"), "import mxnet")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(role, port, workers=1, extra=None):
    """The environment variables of one process of a cluster with one server."""
    # MXNet would take PORT for the node's own port.
    kept = {key: value for key, value in os.environ.items() if key not in ("PORT", "PYTHONPATH")}
    return kept | {
        "DMLC_ROLE": role,
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": "1",
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NODE_HOST": "127.0.0.1",
    } | (extra or {})


def cluster(python, program, pinning, workers=1, extra=None):
    """A Party: scheduler, server, the measured worker, and the other workers, whose command ends with "accompany".

    program: the worker's file and arguments; extra: environment variables of all processes.
    """
    port = free_port()
    command = [python, *program]
    helpers = []

    def start(name, words, role, cpus):
        return Process(f"MXNet {name}", words, cpus, environment(role, port, workers, extra))

    try:
        for role in ("scheduler", "server"):
            serve = [python, "-c", "import mxnet"]  # a process with such a role never returns from the import
            helpers.append(start(role, serve, role, pinning.server))
        for number in range(1, workers):
            helpers.append(start(f"worker {number}", [*command, "accompany"], "worker", pinning.client))
    except OSError as error:
        for helper in helpers:
            helper.end(seconds=1)
        raise Broken(f"MXNet: {error}") from error
    return started(lambda: start("worker", command, "worker", pinning.client), helpers)


def alone(python, program, pinning, extra=None):
    """A Party: one process without a cluster."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | (extra or {})
    return started(lambda: Process("MXNet", [python, *program], pinning.client, kept))
