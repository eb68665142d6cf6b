"""Gossiping processes that are killed, stopped and started again: the others train on, and find them again."""

import json
import os
import signal
import sys

import pytest

from nodes import Node

TIMEOUT_MS = 1000

# argv: name, port, value. On its input: lines "name port" of peers. Each tenth step it tells how it stands.
SCRIPT = """
import json, sys, threading, time
import numpy as np
from polyverso import gossip

name, port, value = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
model = np.full(300_000, value, np.float32)
node = gossip.ArrayAdapter([model], name, {"nodes": [{"name": name, "host": "127.0.0.1", "port": port}], "timeout_ms": %d})
print("listens", node.gossip.state["address"].rsplit(":", 1)[1], flush=True)

def introduce():
    for line in sys.stdin:
        peer, at = line.split()
        node.gossip.add_peer(peer, "127.0.0.1", int(at))

threading.Thread(target=introduce, daemon=True).start()
longest, step = 0, 0
while True:
    step += 1
    node.update_send(1)
    time.sleep(0.01)
    begun = time.monotonic()
    node.update_wait(1)
    longest = max(longest, time.monotonic() - begun)
    if not (model == model[0]).all():
        sys.exit("a torn snapshot was averaged")
    if step %% 10 == 0:
        state = node.gossip.state
        print("stands", json.dumps([step, float(model[0]), state["averaged"], longest,
              {peer["name"]: [peer["fetched"], peer["failed"], peer["score"]] for peer in state["peers"]}]), flush=True)
""" % TIMEOUT_MS


class Swarm:
    def __init__(self):
        self.nodes, self.ports = {}, {}

    def start(self, name, value):
        """A process; one of a name that there was before listens where that did, where the others look for it."""
        known_before = name in self.ports
        node = Node(name, [sys.executable, "-c", SCRIPT, name, str(self.ports.get(name, 0)), str(value)], dict(os.environ))
        self.ports[name] = int(node.hear("listens").split()[1])
        for other, port in self.ports.items():
            if other != name:
                self.introduce(node, other, port)
        if not known_before:
            for other in self.nodes.values():
                self.introduce(other, name, self.ports[name])
        self.nodes[name] = node

    @staticmethod
    def introduce(node, name, port):
        node.process.stdin.write(f"{name} {port}\n")
        node.process.stdin.flush()

    def stands(self, name):
        """Its next report: step, value, averaged, longest wait, peers."""
        return json.loads(self.nodes[name].hear("stands").split(" ", 1)[1])

    def until(self, name, holds):
        """Reads reports until one is as expected: how long that takes is the machine's business."""
        for _ in range(400):
            report = self.stands(name)
            if holds(report):
                return report
        raise AssertionError(f"{name} never came that far; its last report: {report}")

    def steps_on(self, name, steps):
        begin = self.stands(name)[0]
        return self.until(name, lambda report: report[0] >= begin + steps)


@pytest.fixture
def swarm():
    swarm = Swarm()
    for value, name in enumerate(("w1", "w2", "w3")):
        swarm.start(name, value)
    yield swarm
    for node in swarm.nodes.values():
        if node.process.poll() is None:
            node.process.send_signal(signal.SIGCONT)
            node.process.kill()
        node.process.wait()


def test_models_come_together(swarm):
    values = [swarm.until(name, lambda report: report[2] >= 60)[1] for name in swarm.nodes]
    assert max(values) - min(values) < 1e-2
    assert 0 <= min(values) and max(values) <= 2


def test_a_killed_node_holds_up_nobody_and_is_found_again(swarm):
    for name in swarm.nodes:
        swarm.until(name, lambda report: report[2] >= 10)
    swarm.nodes["w3"].process.kill()
    swarm.nodes["w3"].process.wait()
    for name in ("w1", "w2"):
        report = swarm.steps_on(name, 50)
        assert report[3] * 1000 < 5 * TIMEOUT_MS  # generous: the machine may be busy
    # Reports are read in order: nothing can come of the dead one after a failure of its has been told.
    fetched = swarm.until("w1", lambda report: report[4]["w3"][1] > 0)[4]["w3"][0]
    swarm.start("w3", 100.0)
    value = swarm.until("w3", lambda report: report[2] >= 60)[1]
    swarm.until("w1", lambda report: report[4]["w3"][0] > fetched + 1 and report[4]["w3"][2] > 900)
    assert value < 90  # it has caught up with two nodes that were at 1 or so


def test_a_stopped_node_holds_up_nobody(swarm):
    for name in swarm.nodes:
        swarm.until(name, lambda report: report[2] >= 10)
    swarm.nodes["w2"].process.send_signal(signal.SIGSTOP)
    for name in ("w1", "w3"):
        assert swarm.steps_on(name, 50)[3] * 1000 < 5 * TIMEOUT_MS
    swarm.nodes["w2"].process.send_signal(signal.SIGCONT)
    swarm.steps_on("w2", 20)
