"""The order in which a store's calls are sent. Priorities on a slow line (the faults option "rate", or a kernel limit):
a small key behind a large push. The order depends on the queue, not on the machine's speed."""

import pytest

# A large push, then push and pull of a small key. Reports the time until the pull is complete, and the bytes of the
# large push that were then still unsent.
PUSH = """
from polyverso import kvstore
node = pv.init()
kv = kvstore.create(TYPE)
large, small = pv.Tensor.full([2 << 20], 1), pv.Tensor.full([1000], 2)
kv.init([1, 2], [large, small])
node.barrier()
begun = time.monotonic()
kv.push(1, large)
kv.push(2, small, priority=PRIORITY)
kv.pull(2, small, priority=PRIORITY)
took = time.monotonic() - begun
metrics = node.metrics()
left = next(float(line.split()[1]) for line in metrics.splitlines() if line.startswith("polyverso_inflight_bytes "))
say("small", took, left, small.numpy()[0])
kv.pull(1, large)
say("large", time.monotonic() - begun, large.numpy()[[0, -1]].tolist())
wait_for_word()
node.shutdown()
"""
LARGE = 8 << 20
RATE = 8e6


def push(cluster, kind, priority, faults=f"rate={RATE:g}"):
    """Returns, per worker, the seconds until the small key's pull was complete, and the large push's unsent bytes."""
    job = cluster(2, 1, transport="tcp", faults=faults, timeout_ms=120000)
    script = f"TYPE, PRIORITY = {kind!r}, {priority}\n" + PUSH
    nodes = [job.python(rank, script) for rank in range(2)]
    server = job.server(0)
    heard = [(node.hear("small", 90).split(), node.hear("large", 90)) for node in nodes]
    for (_, _, _, value), large in heard:
        assert float(value) == 4 and large.endswith("[2.0, 2.0]")
    for node in nodes:
        node.tell("end")
    for node in [*nodes, server]:
        node.ends()
    print(f"{kind}, priority {priority}: small key after {[float(small[1]) for small, _ in heard]} s, large one after {[float(large.split()[1]) for _, large in heard]} s")
    return [(float(small[1]), float(small[2])) for small, _ in heard]


def test_without_a_priority_a_small_key_waits_for_a_large_one(cluster):
    for took, left in push(cluster, "dist_sync", 0):
        assert left < LARGE / 2 and took > LARGE / RATE / 2


def test_with_one_it_overtakes_what_has_not_left(cluster):
    for _, left in push(cluster, "dist_sync", 5):
        assert left >= LARGE


@pytest.mark.parametrize("kind, van", [("p3", None), ("dist_sync", "p3")])
def test_in_p3_it_overtakes_between_slices(cluster, monkeypatch, kind, van):
    if van is not None:
        monkeypatch.setenv("DMLC_PS_VAN_TYPE", van)
    for took, left in push(cluster, kind, 5):
        assert left >= LARGE
        assert took < LARGE / RATE  # half a MiB was sent before it, not 8


def test_in_p3_it_overtakes_on_a_narrow_line_of_the_kernels(narrow_line, cluster):
    narrow_line(RATE)
    # The pushes of both workers share the line.
    for took, left in push(cluster, "p3", 5, faults=None):
        assert left >= LARGE
        assert took < 2 * LARGE / RATE / 2
    for took, left in push(cluster, "dist_sync", 0, faults=None):
        assert left < LARGE / 2 and took > 2 * LARGE / RATE / 2


CROSSWISE = """
from polyverso import kvstore
node = pv.init()
kv = kvstore.create(TYPE)
kv.init(["a", "b"], [np.zeros(COUNT, np.float32)] * 2)
ones, out = np.ones(COUNT, np.float32), {key: np.zeros(COUNT, np.float32) for key in "ab"}
for _ in range(3):
    pulls = []
    for key in ORDER:
        kv.push(key, ones)
        pulls.append(kv.pull_async(key, out[key]))
    for pull in pulls:
        pull.wait()
say("sums", out["a"][-1], out["b"][-1])
node.shutdown()
"""


@pytest.mark.parametrize("kind", ["dist_sync", "p3"])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_workers_may_take_the_keys_in_different_orders(cluster, kind, transport):
    # Each worker's pull waits at the server for the other's push, which is behind a pull that waits for this one's.
    job = cluster(2, 1, transport=transport, timeout_ms=60000)
    nodes = [job.python(rank, f"TYPE, ORDER, COUNT = {kind!r}, {order!r}, {4 << 20}\n" + CROSSWISE) for rank, order in enumerate(("ab", "ba"))]
    server = job.server(0)
    for node in nodes:
        assert node.hear("sums", 90).split() == ["sums", "2.0", "2.0"]
    for node in [*nodes, server]:
        node.ends()
