"""A swarm of gossiping nodes, one in each language: C, Python, Perl and Lua, and PyTorch if this Python has it."""

import importlib.util
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent / "gossip"
COMMANDS = {
    "c": ["parity_gossip_node"],
    "python": [sys.executable, HERE / "node.py"],
    "perl": ["perl", HERE / "node.pl"],
    "lua51": ["lua5.1", HERE / "node.lua"],
    "luajit": ["luajit", HERE / "node.lua"],
    "lua54": ["lua5.4", HERE / "node.lua"],
}
if importlib.util.find_spec("torch"):
    COMMANDS["torch"] = [sys.executable, HERE / "node.py"]


class Node:
    def __init__(self, name, value):
        more = ["torch"] if name == "torch" else []
        command = [*map(str, COMMANDS[name]), name, str(value), *more]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self, word):
        """Reads the next line, which must start with `word`. Returns its other words."""
        line = self.process.stdout.readline()
        assert line.startswith(word), f"{self.process.args}: {line!r} instead of {word!r}"
        return line.split()[1:]


def test_one_swarm_with_a_node_in_each_language():
    nodes = {name: Node(name, 3.0 * place) for place, name in enumerate(COMMANDS)}
    highest = 3.0 * (len(nodes) - 1)
    try:
        ports = {name: node.hear("listens")[0] for name, node in nodes.items()}
        for name, node in nodes.items():
            for peer, port in ports.items():
                if peer != name:
                    node.tell(f"peer {peer} {port}")
        # A pull by every node leaves about half of the variance. 40 pulls leave less than a millionth of the spread.
        for step in range(40):
            for node in nodes.values():
                node.tell("step")
            steps = {name: [float(word) for word in node.hear("stepped")] for name, node in nodes.items()}
            if step > 0:  # in the first step, peers may not have published yet
                assert {name: factor for name, (factor, _) in steps.items()} == dict.fromkeys(nodes, 0.5)
        values = [value for _, value in steps.values()]
        assert max(values) - min(values) < 1e-3
        assert 0 < min(values) and max(values) < highest
        for node in nodes.values():
            node.process.stdin.close()
        assert {name: node.process.wait(20) for name, node in nodes.items()} == dict.fromkeys(nodes, 0)
    finally:
        for node in nodes.values():
            if node.process.poll() is None:
                node.process.kill()
                node.process.wait()
