"""Gossip between two processes: ours, or dpwa's scheme with a Python server thread, a socket, pickle and numpy.

    gossip_worker.py ours|dpwa|plain CASE BYTES

cycle   publish, fetch from the peer, average
mutual  a cycle in both processes at once
fetch   only fetch from the peer
send    only publish
step    a training step with a cycle around it; plain: without the cycle

The other process is a child of this program. It has published once, and serves; of mutual, it also does what this one does.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy: one CPU trains, one gossips

import multiprocessing
import pickle
import socket
import struct
import sys
import threading

import batch
import numpy as np

OWN, OTHER, TIMEOUT_MS = 1.0, 3.0, 60_000
SAMPLES = 512  # samples per batch


class Ours:
    def __init__(self, name, values):
        from polyverso import gossip

        self.values = values
        node = {"name": name, "host": "127.0.0.1", "port": 0}
        self.node = gossip.Gossip({"nodes": [node], "timeout_ms": TIMEOUT_MS}, name)

    def port(self):
        return int(self.node.state["address"].rsplit(":", 1)[1])

    def meet(self, name, port):
        self.node.add_peer(name, "127.0.0.1", port)

    def send(self):
        self.node.publish([self.values], 1)

    def begin_fetch(self):
        self.node.fetch_start()

    def end_fetch(self):
        if self.node.fetch_wait(1) is None:
            batch.fail("nothing was fetched: " + self.node.state["last"])

    def fetch(self):
        self.begin_fetch()
        self.end_fetch()

    def average(self):
        self.node.average(self.values)


class Dpwa:
    """The scheme in plain Python: the parameters as bytes in a dict, pickled, sent with a length prefix."""

    def __init__(self, _, values):
        self.values, self.blob, self.lock = values, b"", threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.serve, daemon=True).start()

    def port(self):
        return self.listener.getsockname()[1]

    def serve(self):
        connection, _ = self.listener.accept()
        while connection.recv(1):
            with self.lock:
                connection.sendall(struct.pack("<q", len(self.blob)) + self.blob)

    def meet(self, _, port):
        self.peer = socket.create_connection(("127.0.0.1", port))

    def send(self):
        blob = pickle.dumps({"w": bytes(self.values)})
        with self.lock:
            self.blob = blob

    def receive(self, count):
        data = bytearray()
        while len(data) < count:
            data += self.peer.recv(min(count - len(data), 1 << 20))
        return data

    def fetch(self):
        self.peer.sendall(b"?")
        (count,) = struct.unpack("<q", self.receive(8))
        self.fetched = pickle.loads(bytes(self.receive(count)))

    def average(self):
        other = np.frombuffer(self.fetched["w"], np.float32)
        self.values = np.float32(0.5) * other + np.float32(0.5) * self.values


class Plain:
    """A process without a peer."""

    def __init__(self, _, values):
        self.values = values

    def port(self):
        return 0

    def nothing(self, *_):
        pass

    send = meet = begin_fetch = end_fetch = average = nothing


def trainer(values):
    """Returns a training step of a linear layer: forward, gradient, descent, in the model's own memory."""
    side = int(values.size**0.5)
    weights = values[: side * side].reshape(side, side)
    given = np.random.default_rng(1).standard_normal((SAMPLES, side), np.float32)

    def train():
        np.subtract(weights, np.float32(1e-9) * (given.T @ (given @ weights)), out=weights)

    return train


SIDES = {"ours": Ours, "dpwa": Dpwa, "plain": Plain}


def cycle(node):
    node.send()
    node.fetch()
    node.average()


def be_the_other(side, size, pipe):
    node = SIDES[side]("other", np.full(size // 4, OTHER, np.float32))
    node.send()
    pipe.send(node.port())
    while (said := pipe.recv()) != "end":
        if said == "cycle":
            cycle(node)
            pipe.send("done")
        else:
            node.meet("measured", said)


def main(side, case, size):
    size = int(size)
    here, there = multiprocessing.get_context("spawn").Pipe()
    other = multiprocessing.get_context("spawn").Process(target=be_the_other, args=(side, size, there), daemon=True)
    other.start()
    node = SIDES[side]("measured", np.full(size // 4, OWN, np.float32))
    node.send()
    node.meet("other", here.recv())
    if case == "mutual":
        here.send(node.port())

    def mutual():
        here.send("cycle")
        cycle(node)
        here.recv()

    train = trainer(node.values)

    def step():
        node.send()
        node.begin_fetch()
        train()
        node.end_fetch()
        node.average()

    once = {"cycle": lambda: cycle(node), "mutual": mutual, "fetch": getattr(node, "fetch", None), "send": node.send, "step": step}[case]

    def repeat(times):
        for _ in range(times):
            once()

    def check():
        if case in ("cycle", "mutual") and not (OWN < node.values[0] <= OTHER and (node.values == node.values[0]).all()):
            batch.fail(f"the average is wrong: {node.values[0]}")

    batch.serve(lambda *_: (repeat, check))
    here.send("end")
    other.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
