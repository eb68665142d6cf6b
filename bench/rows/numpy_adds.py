"""Additions in one process, to tables and to tensors, compared with NumPy's."""

import sys

from harness.bench import measurement
from harness.compare import Batch
from harness.process import Process, started
from harness.result import Row, ratio_at_least
from harness.units import gigabytes_per_second

SIZES = {"1e6": 1_000_000, "16e6": 16_000_000}
OURS = {"table": "table.add(a), cluster of one", "tensor": "tensor += tensor"}


def adder(bench):
    words = [sys.executable, bench.sources / "programs" / "adder.py"]
    return lambda: started(lambda: Process("adder.py", words, bench.parties.one_cpu.client, bench.environment))


@measurement
def numpy_adds(bench):
    """adds of 1e6 and of 16e6 f32 from Python, to a table in a cluster of one and to a tensor, compared with NumPy's a += b"""
    sides = dict.fromkeys((*OURS, "numpy"), adder(bench))
    cases = {title: {side: Batch(side, 4 * count) for side in sides} for title, count in SIZES.items()}
    for title, comparison in bench.compare(sides, cases, bench.effort.less(rounds=2)).items():
        speed = gigabytes_per_second(4 * SIZES[title])
        for side, what in OURS.items():
            yield Row(
                name=f"python3: {what}, {title} f32",
                ours=comparison.of(side).map(speed),
                unit="GB/s",
                peer="NumPy, a += b",
                peer_value=comparison.of("numpy").map(speed),
                ratio=comparison.ratio("numpy", side),
                target=ratio_at_least(0.5),
                runs=comparison.runs,
                note=f"the argument's bytes counted once, warm arrays, sums checked; on CPU {bench.parties.one_cpu.client}",
            )
