"""Gossip between two processes of one machine, compared with dpwa's scheme in plain Python, with memcpy and with hivemind."""

import sys

from harness import machine
from harness.bench import measurement
from harness.compare import Batch
from harness.environments import Environment
from harness.process import Process, started
from harness.result import Row, ratio_at_most
from harness.units import microseconds

SIZE = 64 << 20
STEP_SIZE = 4 << 20
# On Debian's PyTorch: PyPI's brings gigabytes for graphics cards.
HIVEMIND = Environment("hivemind", "hivemind-venv", ("hivemind==1.1.12",), "import hivemind", debian="import torch")


def party(bench, side, case, size=SIZE):
    words = [sys.executable, bench.sources / "programs" / "gossip_worker.py", side, case, size]
    return lambda: started(lambda: Process(f"{side}, {case}", words, ",".join(map(str, machine.cpus())), bench.environment))


def compared(bench, title, case, peer, start, operation, limit, note="two processes; any CPU", rounds=2):
    sides = {"ours": party(bench, "ours", case), peer: start}
    batches = {"ours": Batch(case, SIZE), peer: Batch(operation, SIZE)}
    comparison = bench.compare(sides, {case: batches}, bench.effort.less(rounds=rounds, pairs=3))[case]
    return Row(
        name=title,
        ours=comparison.of("ours").map(microseconds),
        unit="µs",
        peer=peer,
        peer_value=comparison.of(peer).map(microseconds),
        ratio=comparison.ratio("ours", peer),
        target=ratio_at_most(limit),
        runs=comparison.runs,
        note=note,
    )


@measurement
def gossip_cycle(bench):
    """publish, fetch and average 64 MiB between two processes, compared with sockets, pickle and numpy"""
    yield compared(bench, "gossip: publish, fetch and average 64 MiB", "cycle", "dpwa's scheme", party(bench, "dpwa", "cycle"), "cycle", 0.2)


@measurement
def gossip_beside_memcpy(bench):
    """a fetch of 64 MiB from a process of the same machine, and a publication, each compared with one memcpy"""
    yield compared(bench, "gossip: fetch 64 MiB within a machine", "fetch", "memcpy", bench.parties.memcpy, "copy", 1 / 0.6)
    yield compared(bench, "gossip: publish 64 MiB", "send", "memcpy", bench.parties.memcpy, "copy", 1.2)


@measurement
def gossip_step(bench):
    """a training step with gossip, compared with one without: two matrix products with a model of 4 MiB"""
    sides = {side: party(bench, side, "step", STEP_SIZE) for side in ("ours", "plain")}
    batches = {side: Batch("step", STEP_SIZE) for side in sides}
    comparison = bench.compare(sides, {"step": batches}, bench.effort.less(rounds=2))["step"]
    yield Row(
        name="gossip: a step of training, a model of 4 MiB",
        ours=comparison.of("ours").map(microseconds),
        unit="µs",
        peer="a step without",
        peer_value=comparison.of("plain").map(microseconds),
        ratio=comparison.ratio("ours", "plain"),
        target=ratio_at_most(1.1),
        runs=comparison.runs,
        note="two processes; one thread of BLAS",
    )


@measurement
def gossip_beside_hivemind(bench):
    """two processes that average 64 MiB with each other at once, compared with a step of hivemind's averager"""
    title, limit, missing = "gossip: both of two processes average 64 MiB", 0.2, bench.why_no(HIVEMIND)
    if missing:
        yield Row(name=title, ours=None, unit="µs", target=ratio_at_most(limit), runs=0, note=missing)
        return
    words = [bench.python_of(HIVEMIND), "-B", bench.sources / "programs" / "hivemind_worker.py", SIZE]
    cpus = ",".join(map(str, machine.cpus()))
    start = lambda: started(lambda: Process("hivemind", words, cpus))  # noqa: E731
    note = "publish, fetch and average; hivemind, without compression, also finds its group anew for each step; any CPU"
    yield compared(bench, title, "mutual", "hivemind", start, "mutual", limit, note, rounds=1)
