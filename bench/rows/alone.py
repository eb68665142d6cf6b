"""A cluster of one process, where the caller's thread accesses the table directly."""

from harness.bench import measurement
from harness.compare import Batch
from harness.result import Row, ratio_at_least
from harness.units import gigabytes_per_second

COUNT = 1_000_000
BYTES = 4 * COUNT


@measurement
def alone(bench):
    """add, and get, of 1e6 f32 in a cluster of one, compared with memcpy"""
    speed = gigabytes_per_second(BYTES)
    copy = Batch("copy", BYTES)
    measured = bench.compare(
        {"ours": bench.parties.table_alone, "memcpy": bench.parties.memcpy},
        {name: {"ours": Batch(name, BYTES), "memcpy": copy} for name in ("add", "get")},
    )
    for name, comparison in measured.items():
        yield Row(
            name=f"{name} of 1e6 f32, cluster of one",
            ours=comparison.of("ours").map(speed),
            unit="GB/s",
            peer="memcpy",
            peer_value=comparison.of("memcpy").map(speed),
            ratio=comparison.ratio("memcpy", "ours"),
            target=ratio_at_least(0.8),
            runs=comparison.runs,
            note=f"payload counted once, warm distinct buffers; all on CPU {bench.parties.one_cpu.client}",
        )
