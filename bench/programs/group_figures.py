"""Measures the bytes that all-reduce sends, and the CPU time of waiting for it. All workers of a run execute it.

    polyverso run -n 4 -- python3 group_figures.py BYTES SECONDS

Rank 0 writes one line of JSON: "sent", the most bytes of values that any rank has sent in an all-reduce of BYTES of
f32; "transport", the transport of the group; "cpu", the most processor seconds that any rank has used, with all its
threads, during SECONDS of waiting in a barrier.
"""

import json
import sys
import time

import numpy as np

import polyverso
from polyverso.group import Group

size, seconds = int(sys.argv[1]), float(sys.argv[2])
with polyverso.init() as node, Group(node) as group:
    values = np.ones(size // 4, dtype=np.float32)
    before = group.info["bytes_sent"]
    group.allreduce(values)
    sent = np.array([group.info["bytes_sent"] - before], dtype=np.int64)
    assert values[0] == values[-1] == group.size
    group.allreduce(sent, op="max")

    group.barrier()
    if group.rank == 0:
        time.sleep(seconds)
    used = time.process_time()
    group.barrier()
    cpu = np.array([0.0 if group.rank == 0 else time.process_time() - used])
    group.allreduce(cpu, op="max")
    if group.rank == 0:
        print(json.dumps({"sent": int(sent[0]), "transport": group.info["transport"], "cpu": float(cpu[0])}), flush=True)
