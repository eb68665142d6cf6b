"""Many small fire-and-forget adds."""

from harness.bench import measurement
from harness.compare import Batch
from harness.result import Row, at_least
from harness.units import per_second

ONE_FLOAT = 4
# The number of adds between two waits until all are applied; fewer for ps-lite, which is slower.
OURS, THEIRS = Batch("forget", ONE_FLOAT, 100_000), Batch("forget", ONE_FLOAT, 20_000)


@measurement
def forgotten_adds(bench):
    """fire-and-forget adds of one float by one client over TCP, order checked, compared with ps-lite in MXNet"""
    pinning = bench.parties.two_if_any
    sides = {"ours": lambda: bench.parties.table_over_tcp(pinning)}
    batches = {"ours": OURS}
    missing = bench.why_no_mxnet()
    if not missing:
        sides["ps-lite"] = lambda: bench.mxnet(pinning)
        batches["ps-lite"] = THEIRS
    comparison = bench.compare(sides, {"adds": batches})["adds"]
    yield Row(
        name="fire-and-forget adds of one float, one client",
        ours=comparison.of("ours").map(per_second),
        unit="/s",
        peer="/s ps-lite in MXNet",
        peer_value=None if missing else comparison.of("ps-lite").map(per_second),
        ratio=None if missing else comparison.ratio("ps-lite", "ours"),
        target=at_least(4_000_000),
        runs=comparison.runs,
        note="; ".join(
            [
                *([missing] if missing else []),
                f"the wait for the last of {OURS.block:,} is in the time (ps-lite: {THEIRS.block:,})",
                "applied in order: the sum of floats of very different sizes has the bits of that order",
                str(pinning),
            ]
        ),
    )
