"""Gossiping processes for tests: each simulates training by sleeping, averages, and reports its state."""

import json
import os
import signal
import sys

import forks
from nodes import Node, started

TIMEOUT_MS = 1000
SCHEDULING_MS = 1500  # the longest time that a busy machine may not schedule a process

# argv: name, host, port, value, further settings. Standard input: lines "name host port" of peers. Reports every tenth step.
SCRIPT = """
import json, sys, threading, time
import numpy as np
from polyverso import gossip

name, host, port, value = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
model = np.full(100_000, value, np.float32)
node = gossip.ArrayAdapter([model], name, {"nodes": [{"name": name, "host": host, "port": port}], "timeout_ms": %d, **json.loads(sys.argv[5])})
print("listens", node.gossip.state["address"].rsplit(":", 1)[1], flush=True)

def introduce():
    for line in sys.stdin:
        peer, where, at = line.split()
        node.gossip.add_peer(peer, where, int(at))

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
    """network: hosts.Hosts, on which the nodes are placed in turn; None: this machine."""

    def __init__(self, network=None, **settings):
        self.nodes, self.ports, self.settings = {}, {}, json.dumps(settings)
        self.network, self.places = network, {}

    def host_of(self, name):
        return self.network[self.places.setdefault(name, len(self.places) % len(self.network))]

    def start(self, name, value):
        """Starts a process. A restarted name listens on its earlier port, where the others look for it."""
        known_before = name in self.ports
        words = [name, self.address_of(name), str(self.ports.get(name, 0)), str(value), self.settings]
        if self.network is None:
            process = forks.start(SCRIPT, dict(os.environ), words=words)
        else:
            command = [*self.host_of(name).inside, sys.executable, "-c", SCRIPT, *words]
            process = started(command, dict(os.environ, POLYVERSO_SECRET="of the tests"))
        node = Node(name, process)
        self.ports[name] = int(node.hear("listens").split()[1])
        for other in self.ports:
            if other != name:
                self.introduce(node, other)
        if not known_before:
            for other in self.nodes.values():
                self.introduce(other, name)
        self.nodes[name] = node

    def address_of(self, name):
        return "127.0.0.1" if self.network is None else self.host_of(name).address

    def introduce(self, node, name):
        node.tell(f"{name} {self.address_of(name)} {self.ports[name]}")

    def stands(self, name):
        """Returns the next report: step, value, averaged, longest wait, peers."""
        return json.loads(self.nodes[name].hear("stands").split(" ", 1)[1])

    def stands_now(self, name):
        """Returns a current report: drops earlier ones that have not been read."""
        self.nodes[name].forget()
        return self.stands(name)

    def until(self, name, holds):
        """Reads reports until `holds` accepts one. Counts reports, not time: the speed depends on the machine."""
        for _ in range(400):
            report = self.stands(name)
            if holds(report):
                return report
        raise AssertionError(f"{name} never came that far; its last report: {report}")

    def steps_on(self, name, steps):
        begin = self.stands(name)[0]
        return self.until(name, lambda report: report[0] >= begin + steps)

    def kill(self, name):
        self.nodes[name].process.kill()
        self.nodes[name].process.wait()

    def end(self):
        for node in self.nodes.values():
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGCONT)
                node.process.kill()
            node.process.wait()
