"""Adds of every dtype, on the caller's thread."""

from harness.bench import measurement
from harness.compare import Batch
from harness.result import Row
from harness.units import gigabytes_per_second

DTYPES = ("f32", "f64", "f16", "bf16", "i64", "i32", "u8")
BYTES = 4 << 20


@measurement
def dtype_adds(bench):
    """blocking add of 4 MiB of each dtype in a cluster of one, compared with memcpy"""
    cases = {name: {"ours": Batch(name, BYTES), "memcpy": Batch("copy", BYTES)} for name in DTYPES}
    sides = {"ours": bench.parties.dtype_adder, "memcpy": bench.parties.memcpy}
    speed = gigabytes_per_second(BYTES)
    for name, comparison in bench.compare(sides, cases, bench.effort.less(rounds=2, pairs=3, seconds=0.1)).items():
        halves = "; the table holds its values as f32" if name in ("f16", "bf16") else ""
        yield Row(
            name=f"add of 4 MiB of {name}, cluster of one",
            ours=comparison.of("ours").map(speed),
            unit="GB/s",
            peer="memcpy",
            peer_value=comparison.of("memcpy").map(speed),
            ratio=comparison.ratio("memcpy", "ours"),
            runs=comparison.runs,
            note=f"the argument's bytes counted once{halves}; on CPU {bench.parties.one_cpu.client}",
        )
