"""Nodes in one process, and configurations with free ports."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

from ports import free_ports  # noqa: E402


def lone(name, **settings):
    """The configuration of a node without peers, on any free port."""
    return {"nodes": [{"name": name, "host": "127.0.0.1", "port": 0}], "timeout_ms": 20000, **settings}


def introduce(*adapters):
    for one in adapters:
        for other in adapters:
            if one is not other:
                port = int(other.gossip.state["address"].rsplit(":", 1)[1])
                one.gossip.add_peer(other.gossip.name, "127.0.0.1", port)


@pytest.fixture
def sample(tmp_path):
    """The sample configuration with free ports, and a time-out that suits a busy machine."""
    first = free_ports(4)
    text = (ROOT / "samples" / "gossip.yaml").read_text().replace("timeout_ms: 2500", "timeout_ms: 20000")
    for place in range(4):
        text = text.replace(str(45000 + place), str(first + place))
    file = tmp_path / "dpwa.yaml"
    file.write_text(text)
    return str(file)


def run_workers(count, script, timeout=200):
    """Runs `script` in `count` workers. Returns what they have printed."""
    command = [os.environ.get("POLYVERSO_COMMAND", "polyverso"), "run", "-n", str(count), "--", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
