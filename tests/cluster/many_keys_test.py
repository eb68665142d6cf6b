"""Stores with very many small keys: counts the costs that must not grow with the number of keys."""

import pytest

KEYS = 20_000

TRAIN = f"""
import resource
from polyverso import kvstore
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
node = pv.init()

def descriptors():
    return len(os.listdir("/proc/self/fd"))

def requests(kind):
    lines = [line for line in node.metrics().splitlines() if f'requests_total{{{{kind="{{kind}}"' in line]
    return sum(int(line.split()[-1]) for line in lines)

kv = kvstore.create("dist_sync")
keys = list(range({KEYS}))
values = [pv.Tensor.full((64,), 1 + key % 7) for key in keys]
before = descriptors(), requests("Create"), requests("Ready")
kv.init(keys, values)
created, readied = requests("Create") - before[1], requests("Ready") - before[2]
kv.push(keys, values)
outs = [pv.Tensor.zeros((64,)) for key in keys]
kv.pull(keys, out=outs)
assert all(out.numpy()[0] == 2 * (1 + key % 7) for key, out in zip(keys, outs))
assert descriptors() - before[0] < 30, descriptors()
assert 0 < created <= 200 and 0 < readied <= 10, (created, readied)  # of two workers, each server
say("lines", len(node.metrics().splitlines()), len(node.status_text().splitlines()))
node.barrier()
say("done")
node.shutdown()
"""


def test_neither_descriptors_nor_rounds_grow_with_keys(cluster):
    job = cluster(2)
    workers = [job.python(rank, TRAIN) for rank in range(2)]
    for worker in workers:
        lines = worker.hear("lines", seconds=120).split()
        assert all(int(count) < 3000 for count in lines[1:]), lines
        worker.hear("done", seconds=60)
        worker.ends()


DISAGREE = """
from polyverso import kvstore
node = pv.init()
kv = kvstore.create("dist_sync")
keys = [f"k{i}" for i in range(3000)]
shapes = [(3,)] * len(keys)
if node.rank == 1:
    shapes[2000] = (4,)
attempt(kv.init, keys, [np.zeros(shape, np.float32) for shape in shapes])
kv.init(keys, [np.full((3,), i, np.float32) for i in range(len(keys))])  # nothing is left of it
out = np.zeros(3, np.float32)
kv.pull("k2000", out=out)
assert out[0] == 2000, out
node.barrier()
say("done")
node.shutdown()
"""


def test_one_key_that_differs_is_named_and_leaves_nothing(cluster):
    job = cluster(2)
    for worker in [job.python(rank, DISAGREE) for rank in range(2)]:
        ending = worker.hear("after", seconds=60)
        assert 'key "k2000"' in ending, ending
        worker.hear("done", seconds=60)
        worker.ends()
