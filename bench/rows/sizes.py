"""Throughput against size, for the plot. Makes no claims."""

from harness.bench import measurement
from harness.compare import Batch

KIB, MIB = 1 << 10, 1 << 20
SIZES = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
QUICK_SIZES = [4 * KIB, MIB, 16 * MIB]


@measurement
def sizes(bench):
    """add + get of 4 KiB to 64 MiB: alone, over TCP, raw socket, memcpy and MXNet, for the plot of throughput"""
    pinning = bench.parties.two_if_any
    sides = {
        "Polyverso, cluster of one": bench.parties.table_alone,
        "Polyverso, TCP": lambda: bench.parties.table_over_tcp(pinning),
        "raw socket": lambda: bench.parties.raw_socket(pinning),
        "memcpy": bench.parties.memcpy,
    }
    if not bench.why_no_mxnet():
        sides["MXNet dist_sync"] = lambda: bench.mxnet(pinning)
    cases = {
        size: {side: Batch("copy" if side == "memcpy" else "add_get", size) for side in sides}
        for size in (QUICK_SIZES if bench.quick else SIZES)
    }
    measured = bench.compare(sides, cases, bench.effort.less(rounds=1, pairs=3, seconds=0.1))
    # A memcpy moves the size once, an add and a get twice.
    bench.curves["throughput"] = (
        f"add + get, bytes of both; one worker, one server; {pinning}",
        {
            side: [(size, (1 if side == "memcpy" else 2) * size / measured[size].of(side).median) for size in cases]
            for side in sides
        },
    )
    return ()
