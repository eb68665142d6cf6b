"""A peer of hivemind's averaging, in hivemind's environment. Operation: mutual, a step of the averager on BYTES bytes of
float32, in this process and in a child of it at once, after which both have the average.

    hivemind_worker.py BYTES

The two find each other through hivemind's hash table (DHT) at loopback addresses. They publish, look for nothing else in
the network, and form a group of two for each step.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # as in gossip_worker.py

import multiprocessing
import signal
import sys

import batch

OWN, OTHER, TIMEOUT_S = 1.0, 3.0, 60.0


class Peer:
    def __init__(self, count, addresses):
        import hivemind
        import torch

        torch.set_num_threads(1)
        own = {"host_maddrs": ["/ip4/127.0.0.1/tcp/0"], "use_relay": False, "nat_port_map": False, "auto_nat": False}
        self.dht = hivemind.DHT(initial_peers=addresses, start=True, **own)
        self.averager = hivemind.DecentralizedAverager(
            [torch.zeros(count)], self.dht, prefix="bench", start=True, min_group_size=2, target_group_size=2, request_timeout=1,
        )

    def addresses(self):
        return [str(address) for address in self.dht.get_visible_maddrs()]

    def fill(self, value):
        with self.averager.get_tensors() as (values,):
            values.fill_(value)

    def is_all(self, value):
        with self.averager.get_tensors() as (values,):
            return bool((values == value).all())

    def step(self):
        if self.averager.step(timeout=TIMEOUT_S) is None:
            batch.fail("a step of the averager has failed")

    def end(self):
        self.averager.shutdown()
        self.dht.shutdown()


def be_the_other(count, pipe, far_end):
    far_end.close()  # otherwise this process would never see the end of the pipe
    peer = Peer(count, pipe.recv())
    pipe.send("ready")
    try:
        while True:
            if pipe.recv() == "step":
                peer.step()
            else:
                peer.fill(OTHER)
                pipe.send("filled")
    except EOFError:
        peer.end()


def end_group_on_signal():
    """hivemind's own processes would survive the end of this one by a signal."""
    leader = os.getpid()
    if os.getpgid(0) != leader:
        os.setpgid(0, 0)

    def end(*_):
        if os.getpid() == leader:
            os.killpg(leader, signal.SIGKILL)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)


def main(size):
    end_group_on_signal()
    count = int(size) // 4
    here, there = multiprocessing.Pipe()
    # A forked child, before hivemind starts threads: hivemind's objects do not survive the pickling of a spawned one.
    other = multiprocessing.get_context("fork").Process(target=be_the_other, args=(count, there, here))
    other.start()
    there.close()
    peer = Peer(count, [])
    here.send(peer.addresses())
    here.recv()

    def prepare(*_):
        here.send("fill")
        peer.fill(OWN)
        here.recv()
        return repeat, check

    def repeat(times):
        for _ in range(times):
            here.send("step")
            peer.step()

    def check():
        if not peer.is_all((OWN + OTHER) / 2):
            batch.fail("the average is wrong")

    try:
        batch.serve(prepare)
    finally:
        here.close()
    peer.end()
    other.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
