"""Some rows of a large matrix, between two processes: the workload of Multiverso's own matrix benchmark."""

from harness.bench import measurement
from harness.compare import Batch
from harness.result import Row, ratio_at_least
from harness.units import gigabytes_per_second, microseconds

ROWS, COLS = 10_000, 50  # out of a million
BYTES = ROWS * COLS * 4
SHAPE = "1 % of 1e6 x 50 f32"
# Medians of Multiverso (github.com/Microsoft/Multiverso, archived 2021) for the same work with two processes, measured
# in 2026.
MULTIVERSO_US = {"get": 1500, "add": 7500}
# Of the loop's speed. A get may read the server's memory directly; an add goes through the server.
LIMITS = {"get": 0.8, "add": 0.5}


@measurement
def row_calls(bench):
    """blocking get and add of 1 % of the rows of a matrix, compared with a gather or scatter loop in local memory"""
    yield from measured(bench, "auto", "", with_targets=True)


@measurement
def row_calls_over_tcp(bench):
    """the same over TCP, where the speed of a local loop is out of reach: for information"""
    yield from measured(bench, "tcp", " over TCP", with_targets=False)


def measured(bench, transport, where, with_targets):
    pinning = bench.parties.two_if_any
    sides = {"ours": lambda: bench.parties.worker("row_worker", pinning, transport), "loop": bench.parties.row_loop}
    loops = {"get": "gather", "add": "scatter"}
    cases = {name: {"ours": Batch(name, BYTES), "loop": Batch(loops[name], BYTES)} for name in loops}
    comparisons = bench.compare(sides, cases)
    for name, comparison in comparisons.items():
        yield time_row(name, comparison, where, pinning)
        yield speed_row(name, comparison, where, with_targets, f"{loops[name]} loop", pinning)


def time_row(name, comparison, where, pinning):
    theirs = MULTIVERSO_US[name]
    return Row(
        name=f"{name} of {SHAPE}{where}",
        ours=comparison.of("ours").map(microseconds),
        unit="µs",
        runs=comparison.runs,
        note=f"random rows in random order, blocking; Multiverso took {theirs:,} µs; every sum checked; {pinning}",
    )


def speed_row(name, comparison, where, with_targets, peer, pinning):
    speed = gigabytes_per_second(BYTES)
    return Row(
        name=f"{name} of {SHAPE}{where}, beside a loop",
        ours=comparison.of("ours").map(speed),
        unit="GB/s",
        peer=peer,
        peer_value=comparison.of("loop").map(speed),
        ratio=comparison.ratio("loop", "ours"),
        target=ratio_at_least(LIMITS[name]) if with_targets else None,
        runs=comparison.runs,
        note=f"payload counted once; the loop has the matrix in its own memory, on one CPU; {pinning}",
    )
