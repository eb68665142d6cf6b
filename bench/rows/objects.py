"""An array in another process of the machine, from Python: a table at a server, compared with Ray's object store."""

import os
import secrets
import sys
import tempfile

from harness.bench import measurement
from harness.compare import Batch
from harness.environments import Environment
from harness.parties import Folder
from harness.process import Process, started
from harness.result import Row, ratio_at_least
from harness.units import gigabytes_per_second, milliseconds

SIZE = 64 << 20
RAY = Environment("Ray", "ray-venv", ("ray==2.60.0", "numpy>=2,<3"), "import numpy, ray")
NAMES = {"get": "python3: get of 64 MiB into own memory", "put": "python3: put of 64 MiB"}
PEERS = {"get": "ray.get() and a copy", "put": "ray.put()"}
LIMITS = {"get": 0.9, "put": 0.6}  # one copy on both sides; Ray's one copy, beside one to the server and one to the table


def ours(bench):
    words = [*bench.parties.run_words(1, "auto"), sys.executable, bench.sources / "programs" / "store_worker.py", "polyverso"]
    return lambda: started(lambda: Process("a table", words, bench.parties.any_cpu.client, bench.environment))


def ray(bench, python):
    """Ray on this machine alone: a fresh token, no statistics, its files in a folder of its own."""

    def start():
        folder = tempfile.TemporaryDirectory(prefix="polyverso-bench-")
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("RAY_")}
        own = {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(16),
            "RAY_preallocate_plasma_memory": "1",  # otherwise most of a put is the kernel's work of clearing pages
        }
        words = [python, "-B", bench.sources / "programs" / "store_worker.py", "ray", folder.name]
        return started(lambda: Process("Ray", words, bench.parties.any_cpu.client, kept | own), [Folder(folder)])

    return start


@measurement
def object_store(bench):
    """get, and put, of 64 MiB in another process of the machine, from Python into NumPy, compared with Ray's object store"""
    missing = bench.why_no(RAY)
    if missing:
        for case, name in NAMES.items():
            yield Row(name=name, ours=None, unit="GB/s", target=ratio_at_least(LIMITS[case]), runs=0, note=missing)
        return
    sides = {"ours": ours(bench), "peer": ray(bench, bench.python_of(RAY))}
    cases = {name: {side: Batch(name, SIZE) for side in sides} for name in NAMES} | {"view": {"peer": Batch("view", SIZE)}}
    measured = bench.compare(sides, cases, bench.effort.less(rounds=1))
    view = measured["view"].of("peer").map(milliseconds).median
    notes = {
        "get": f"the copy is to warm memory; ray.get() alone, which gives a read-only view, takes {view:.2f} ms",
        "put": "set() of the table, whose readers then see these values; Ray makes an object of its own",
    }
    speed = gigabytes_per_second(SIZE)
    for case, name in NAMES.items():
        comparison = measured[case]
        yield Row(
            name=name,
            ours=comparison.of("ours").map(speed),
            unit="GB/s",
            peer=PEERS[case],
            peer_value=comparison.of("peer").map(speed),
            ratio=comparison.ratio("peer", "ours"),
            target=ratio_at_least(LIMITS[case]),
            runs=comparison.runs,
            note=f"{notes[case]}; any CPU",
        )
