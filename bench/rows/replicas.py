"""What it costs that another server keeps a copy of each server's tables."""

import sys

from harness.bench import measurement
from harness.compare import Batch
from harness.process import Process, started
from harness.result import Row, ratio_at_most
from harness.units import microseconds, milliseconds

ONE_FLOAT, MIB = 4, 1 << 20


def side(bench, replicas, words, pinning):
    words = [bench.parties.launcher, "run", "--no-color", "-v", "--servers", 2, "--replicas", replicas, *words]
    return lambda: started(lambda: Process(f"replicas={replicas}", words, pinning.server, bench.environment))


def compared(bench, title, words, batch, target, unit=microseconds):
    """A worker's operation with `replicas=1` and with 0. All processes may use any CPU: there are more of them than CPUs."""
    pinning = bench.parties.any_cpu
    sides = {name: side(bench, replicas, words, pinning) for name, replicas in (("twice", 1), ("once", 0))}
    comparison = bench.compare(sides, {title: dict.fromkeys(sides, batch)})[title]
    return Row(
        name=f"{title}, replicas=1",
        ours=comparison.of("twice").map(unit),
        unit="µs" if unit is microseconds else "ms",
        peer="replicas=0",
        peer_value=comparison.of("once").map(unit),
        ratio=comparison.ratio("twice", "once"),
        target=target,
        runs=comparison.runs,
        note=f"two servers; {pinning}",
    )


@measurement
def replicas(bench):
    """adds, gets, and dist_sync pushes of two workers, with and without back-ups of two servers"""
    table = ["-n", 1, "--", bench.parties.programs / "table_worker"]
    yield compared(bench, "blocking add of one float", table, Batch("add", ONE_FLOAT), ratio_at_most(2.2))
    yield compared(bench, "blocking get of one float", table, Batch("get", ONE_FLOAT), ratio_at_most(1.05))
    yield compared(bench, "add of 64 MiB", table, Batch("add", 64 * MIB), ratio_at_most(round(1 / 0.55, 2)), milliseconds)
    yield compared(bench, "get of 64 MiB", table, Batch("get", 64 * MIB), ratio_at_most(1.05), milliseconds)
    for title, size, unit in (("4 B", 4, microseconds), ("64 MiB", 64 * MIB, milliseconds)):
        store = [sys.executable, bench.sources / "programs" / "kv_worker.py", "polyverso", "dist_sync", "push_pull", size]
        yield compared(bench, f"dist_sync store, two workers: push and pull of {title}", ["-n", 2, "--", *store], Batch("push_pull", size), ratio_at_most(1.3), unit)
