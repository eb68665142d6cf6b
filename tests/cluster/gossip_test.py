"""Gossiping processes that are killed, stopped and started again: the others train on, and find them again."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from nodes import Node

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


def two_free_ports():
    """The first of two neighbours that nobody listens at."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = first.getsockname()[1]
            try:
                with socket.create_server(("127.0.0.1", port + 1)):
                    return port
            except OSError:
                continue


def test_the_example_learns(tmp_path):
    pytest.importorskip("torch", reason="python3-torch is not installed")
    folder = tmp_path / "examples" / "gossip-cifar"
    shutil.copytree(ROOT / "examples" / "gossip-cifar", folder, ignore=shutil.ignore_patterns("logs", "nodes.yaml", "*.png"))
    (tmp_path / "data").symlink_to(ROOT / "data")
    subprocess.run([folder / "prepare.sh", "2", str(two_free_ports())], check=True, capture_output=True)
    run = subprocess.run([folder / "run.sh", "--epochs", "6"], capture_output=True, text=True, timeout=250, env={**os.environ, "PYTHON": sys.executable})
    assert (run.returncode, run.stderr) == (0, "")
    accuracies = [float(word) for word in re.findall(r"final accuracy ([\d.]+)", run.stdout)]
    assert len(accuracies) == 2 and min(accuracies) > 0.85
    assert "the repository's digits" in (folder / "logs" / "w1.out").read_text()
    assert subprocess.run([folder / "stop.sh"], capture_output=True, text=True, check=True).stdout == "none is running\n"


# A node in each language: tells its port, learns its peers, and makes a step for each line "step", until its input ends.
LANGUAGES = {
    "python": ([sys.executable, "-c"], """
import sys
import numpy as np
from polyverso import gossip

name, value = sys.argv[1:]
model = np.full(1000, float(value), np.float32)
node = gossip.ArrayAdapter([model], name, {"nodes": [{"name": name, "host": "127.0.0.1", "port": 0}], "timeout_ms": 20000})
print("listens", node.gossip.state["address"].rsplit(":", 1)[1], flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "peer":
        node.gossip.add_peer(words[1], "127.0.0.1", int(words[2]))
    else:
        node.update_send(1)
        print("stepped", node.update_wait(1), model[999], flush=True)
"""),
    "perl": (["perl", "-we"], """
use PDL::Lite;
use Polyverso;
use Polyverso::Gossip;
$| = 1;
my ($name, $value) = @ARGV;
my $model = PDL->zeroes(PDL::float(), 1000);
$model += $value;
my $text = "nodes: [{name: $name, host: 127.0.0.1, port: 0}]\\ntimeout_ms: 20000\\n";
my $node = Polyverso::Gossip->open(\\$text, $name);
print 'listens ', $node->state->{address} =~ /:(\\d+)$/, "\\n";
while (my $line = <STDIN>) {
    my @words = split ' ', $line;
    if ($words[0] eq 'peer') { $node->add_peer($words[1], '127.0.0.1', $words[2]); next }
    $node->update_send([$model], 1);
    print 'stepped ', $node->update_wait([$model], 1), ' ', $model->at(999), "\\n";
}
"""),
    "lua": (["lua5.4"], """
local gossip = require("polyverso.gossip")
local name, value = arg[1], tonumber(arg[2])
local model = {}
for i = 1, 1000 do model[i] = value end
local node = gossip.open_text(("nodes: [{name: %s, host: 127.0.0.1, port: 0}]\\ntimeout_ms: 20000"):format(name), name)
io.stdout:setvbuf("line")
print("listens " .. node:state():match(":(%d+)"))
for line in io.lines() do
  local peer, port = line:match("^peer (%S+) (%d+)")
  if peer then
    node:add_peer(peer, "127.0.0.1", tonumber(port))
  else
    node:update_send({model}, 1)
    print("stepped " .. node:update_wait({model}, 1) .. " " .. model[1000])
  end
end
"""),
}


def test_one_swarm_with_a_node_in_each_language(tmp_path):
    nodes, ports = {}, {}
    for value, (language, (command, script)) in enumerate(LANGUAGES.items()):
        if shutil.which(command[0]) is None:
            pytest.skip(f"there is no {command[0]}")
        if language == "lua":  # which reads no script from its command line with arguments
            (tmp_path / "node.lua").write_text(script)
            words = [command[0], tmp_path / "node.lua"]
        else:
            words = [*command, script]
        nodes[language] = Node(language, [*map(str, words), language, str(3.0 * value)], dict(os.environ))
        ports[language] = nodes[language].hear("listens").split()[1]

    def tell(node, line):
        node.process.stdin.write(line + "\n")
        node.process.stdin.flush()

    try:
        for language, node in nodes.items():
            for peer, port in ports.items():
                if peer != language:
                    tell(node, f"peer {peer} {port}")
        for _ in range(25):
            for node in nodes.values():
                tell(node, "step")
            steps = [node.hear("stepped").split() for node in nodes.values()]
        values = [float(step[2]) for step in steps]
        assert max(values) - min(values) < 1e-3
        assert 0 <= min(values) and max(values) <= 6
        assert all(float(step[1]) == 0.5 for step in steps)
    finally:
        for node in nodes.values():
            node.process.stdin.close()
        for node in nodes.values():
            node.process.wait(20)
