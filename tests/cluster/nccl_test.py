"""All-reduces of groups between devices, by a library such as NCCL. Devices and library are emulated: the library's order of operands is not that of
this library, and it counts its all-reduces."""

import os
import time

import pytest

EMULATION = os.environ.get("DEVICE_EMULATION")
if EMULATION is None:
    pytest.skip("DEVICE_EMULATION names no plug-in: run this test through ctest", allow_module_level=True)

COMMON = """
import ctypes
from polyverso.group import Group

emulation = ctypes.CDLL(EMULATION)
emulation.emulation_reductions.restype = ctypes.c_int64
reductions = emulation.emulation_reductions
node = pv.init()
rank = node.worker_id
device = f"cuda:{rank % 2}"
LARGE = 40_000

def full(value, count=LARGE, dtype="f32", where=None):
    return pv.Tensor.full(count, value, dtype, device=where or device)

def values(tensor):
    found = np.unique(tensor.cast("f64").numpy())
    return found[0] if len(found) == 1 else found
""".replace("EMULATION", repr(EMULATION))


def start(job, ranks, script, emulation=None, **settings):
    """Starts `script` on each rank. `emulation`: by rank."""
    return [
        job.python(number, COMMON + script, device_plugin=EMULATION, emulation=",".join(filter(None, ["guard=1", (emulation or {}).get(number)])), **settings)
        for number in range(ranks)
    ]


def both(function):
    """With shared memory, and by messages."""
    return pytest.mark.parametrize("transport", ["auto", "tcp"])(function)


REDUCE = """
group = Group(node)
assert group.info["collective"] == "own" and "NCCL is tried" in group.info["collective_why"], group.info
n = group.size
for dtype in ("f32", "f64", "f16", "bf16", "i32", "i64", "u8", "i8"):
    before = reductions()
    for op, expected in (("sum", n * (n + 1) // 2), ("prod", [1, 1, 2, 6, 24][n]), ("min", 1), ("max", n), ("avg", (n + 1) / 2)):
        floats = dtype.startswith(("f", "b"))
        if op == "avg" and not floats:
            continue
        there = full(rank + 1, 2 * LARGE, dtype)
        assert group.allreduce(there, op=op) is there and there.device == device
        assert float(values(there)) == expected, (dtype, op, values(there))
    # min and max of floats have this library's rule for NaN
    assert reductions() - before == (3 if floats else 4), (dtype, reductions() - before)
assert group.info["collective"] == "nccl" and "emulated NCCL 1.0" in group.info["collective_why"], group.info

# Several arrays of several dtypes, of which one is small and one empty; out of place by the C interface
before = reductions()
arrays = [full(rank + 1), full(rank + 1, 3, "f64"), full(1, 0), full(10 * (rank + 1), LARGE, "i32")]
assert group.allreduce_many(arrays) == n and reductions() == before + 1
assert [float(values(each)) for each in (arrays[0], arrays[1], arrays[3])] == [n * (n + 1) / 2] * 2 + [5 * n * (n + 1)]

# Without blocking, among others of all kinds
small, host = full(rank + 1, 10), np.full(10, rank + 1.0)
begun = [group.allreduce_async(full(rank + 1 + i), op="avg") for i in range(3)]
begun.append(group.allreduce_async(small))
begun.append(group.allreduce_many_async([full(rank + 1), full(rank + 1)]))
begun.append(group.broadcast_async(host, root=1))
last = full(rank + 1)
group.allreduce(last)
results = [request.wait() for request in begun]
assert [float(values(each)) for each in results[:3]] == [(n + 1) / 2 + i for i in range(3)]
assert float(values(small)) == n * (n + 1) / 2 == float(values(last)) == float(values(results[4][1])) and host[3] == 2
assert reductions() - before == 6, reductions() - before

# Another device than before, and none: through the host
before = reductions()
there = full(rank + 1, where=f"cuda:{(rank + 1) % 2}" if rank == 0 else device)
group.allreduce(there)
assert float(values(there)) == n * (n + 1) / 2 and reductions() == before
group.allreduce(last)
assert reductions() == before + 1

# Equal bits on all ranks, whatever the order
random = pv.Tensor.normal(LARGE, rank, 0, 1, device=device)
group.allreduce(random)
assert reductions() == before + 2
group.allreduce(random.to("cpu"))
everywhere = group.allgather(random.numpy())
assert all(np.array_equal(everywhere[0], each) for each in everywhere)
operations = group.info["operations"]
group.allreduce(full(1))
group.allreduce(full(1, 10))
group.barrier()
assert group.info["operations"] == operations + 3, (operations, group.info)
say("reduced", rank)
group.close()

again = Group(node)
there = full(1)
again.allreduce(there)
assert float(values(there)) == n and again.info["collective"] == "nccl"
node.shutdown()
"""


@pytest.mark.parametrize("ranks", [2, 3])
@both
def test_arrays_on_devices_are_reduced_between_them(cluster, transport, ranks):
    nodes = start(cluster(ranks, transport=transport), ranks, REDUCE)
    for node in nodes:
        node.hear("reduced", 60)
    for node in nodes:
        node.ends()


HOST_ARRAY = """
group = Group(node)
group.allreduce(full(1))
before = reductions()
for step in range(40):
    mine = full(rank + 1)
    if rank == 1 and step < 30:
        mine = np.full(LARGE, 2, np.float32)
    group.allreduce(mine)
    assert float(values(mine) if rank != 1 or step >= 30 else mine[7]) == 6
say("device", reductions() - before)
group.barrier()
assert group.info["operations"] == 42, group.info
node.shutdown()
"""


@both
def test_a_rank_with_an_array_on_the_host_sends_all_through_the_host(cluster, transport):
    """After failures in a row, the ranks ask each other less often: at the operations 0, 1, 5, 13 and 29, where each failed, and at 45."""
    nodes = start(cluster(3, transport=transport), 3, HOST_ARRAY)
    for node in nodes:
        assert node.hear("device", 60) == "device 0"
        node.ends()


ON_HOST = """
group = Group(node)
there = full(rank + 1)
group.allreduce(there)
group.allreduce(there, op="avg")
say("value", float(values(there)), "by", group.info["collective"], "because", group.info["collective_why"])
assert reductions() == 0
node.shutdown()
"""


@pytest.mark.parametrize(
    ("emulation", "settings", "why"),
    [
        ({1: "comm=0"}, {}, "not NCCL: rank 1: cuda:1: all-reduces between devices: the library for communicators is missing: install it"),
        ({2: "comm_make=0"}, {}, "not NCCL: emulated NCCL 1.0 could not be used by another rank, whose log says why"),
        ({}, {"collective": "own"}, "because collective=own"),
    ],
)
@both
def test_ranks_without_the_library_go_through_the_host(cluster, transport, emulation, settings, why):
    nodes = start(cluster(3, transport=transport, **settings), 3, ON_HOST, emulation)
    line = nodes[0].hear("value", 60)
    assert line.startswith("value 6.0 by own because") and line.endswith(why) or why in line, line
    for node in nodes:
        node.ends()


def test_a_rank_without_a_plug_in_is_known_when_the_group_opens(cluster):
    script = """
group = Group(node)
there = full(rank + 1, where="cpu" if rank == 1 else device)
group.allreduce(there)
say("value", float(values(there)), group.info["collective_why"])
node.shutdown()
"""
    job = cluster(2, collective="nccl")
    nodes = [job.python(0, COMMON + script, device_plugin=EMULATION), job.python(1, COMMON + script, device_plugin="none.so")]
    for node in nodes:
        assert node.hear("value", 60) == "value 3.0 collective=nccl, but rank 1 has no plug-in for devices, or its collective is own or mpi"
        node.ends()


MISMATCH = """
group = Group(node)
group.allreduce(full(1))
for count, dtype, op in ((LARGE + rank, "f32", "sum"), (LARGE, ("f32", "i32")[rank % 2], "sum"), (LARGE, "f32", ("sum", "prod")[rank % 2]),
                         ((LARGE, 10)[rank % 2], "f32", "sum")):
    attempt(group.allreduce, full(1, count, dtype), op=op)
    last = full(rank + 1)
    group.allreduce(last)
    assert float(values(last)) == 3
attempt(group.allreduce, full(1)) if rank else attempt(group.barrier)
assert reductions() == 5 and group.info["collective"] == "nccl"
group.allreduce(full(1))
say("works", rank)
node.shutdown()
"""


@both
def test_ranks_that_differ_get_an_error_and_go_on(cluster, transport):
    nodes = start(cluster(2, transport=transport), 2, MISMATCH)
    for _ in range(5):
        for node in nodes:
            _, ending = node.hear_attempt(60)
            assert ending.startswith("StateError: ") and "rank 0" in ending and "rank 1" in ending, ending
    for node in nodes:
        node.hear("works")
        node.ends()


# Two agreements fail, so that the ranks do not ask at the next operations. They count these alike, also one that differs.
SKIPPING = """
group = Group(node)
for step in range(2):
    group.allreduce(full(1, where="cpu") if rank else full(1))
attempt(group.allreduce, full(1)) if rank else attempt(group.barrier)
for step in range(12):
    last = full(rank + 1)
    group.allreduce(last)
    assert float(values(last)) == 3
assert group.info["collective"] == "nccl" and reductions() > 5
say("works", rank)
node.shutdown()
"""


@both
def test_ranks_that_differ_count_alike(cluster, transport):
    nodes = start(cluster(2, transport=transport), 2, SKIPPING)
    for node in nodes:
        _, ending = node.hear_attempt(60)
        assert ending.startswith("StateError: ") and "rank 0" in ending and "rank 1" in ending, ending
    for node in nodes:
        node.hear("works")
        node.ends()


LOSS = """
group = Group(node)
group.allreduce(full(1))
group.allreduce(full(1))
say("pid", os.getpid())
wait_for_word()
there = full(1)
attempt(group.allreduce, there)
smaller = group.shrink()
assert smaller.info["collective"] == "own", smaller.info
for step in range(3):
    there = full(1)
    smaller.allreduce(there)
    assert float(values(there)) == smaller.size
say("shrunk to", smaller.size, "reductions", reductions(), smaller.info["collective"])
node.shutdown()
"""


@both
def test_survivors_of_a_rank_that_is_killed_inside_an_all_reduce_go_on_between_devices(cluster, transport):
    """The killed rank has agreed on the operation, and the others wait for it in the library."""
    nodes = start(cluster(3, transport=transport), 3, LOSS, {2: "comm_stall=2"})
    for node in nodes:
        node.hear("pid", 60)
    for node in nodes:
        node.tell("go")
    time.sleep(1)
    nodes[2].kill()
    for node in nodes[:2]:
        took, ending = node.hear_attempt()
        assert ending.startswith("PeerError: ") and "rank 2 of the group" in ending and took > 0.5, ending
        assert node.hear("shrunk") == "shrunk to 2 reductions 6 nccl"
        node.ends()


STALL = """
group = Group(node)
group.allreduce(full(1))
{call}
say("broken", group.info["broken"] if "broken" in group.info else "")
smaller = group.shrink()
there = full(1)
smaller.allreduce(there)
say("shrunk to", smaller.size, "reductions", reductions(), smaller.info["collective"])
node.shutdown()
"""


@both
def test_an_all_reduce_that_the_library_does_not_end_times_out(cluster, transport):
    script = STALL.format(call="attempt(group.allreduce, full(1), timeout=1)")
    nodes = start(cluster(2, transport=transport), 2, script, {1: "comm_stall=1"})
    endings = [node.hear_attempt()[1] for node in nodes]
    assert all(ending.startswith("TimeoutError: ") for ending in endings), endings
    assert all("emulated NCCL 1.0 has not ended an all-reduce that all ranks have begun" in ending for ending in endings), endings
    for node in nodes:
        assert node.hear("shrunk") == "shrunk to 2 reductions 3 nccl"
        node.ends()


@both
def test_an_error_of_the_library_breaks_the_group(cluster, transport):
    script = STALL.format(call="attempt(group.allreduce, full(1))")
    nodes = start(cluster(2, transport=transport), 2, script, {0: "comm_fail=1", 1: "comm_stall=1"})
    for node in nodes:
        _, ending = node.hear_attempt()
        assert "rank 0 of the group" in ending and "has given up: " in ending and "the network failed" in ending, ending
        node.hear("shrunk")
        node.ends()


@both
def test_a_signal_reaches_its_handler_and_an_exception_breaks_the_group(cluster, transport):
    call = """
def handler(*_):
    say("interrupted")
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, handler)
if rank == 0:
    signal.setitimer(signal.ITIMER_REAL, 0.7)
try:
    attempt(group.allreduce, full(1))
except KeyboardInterrupt:
    say("raised")
"""
    nodes = start(cluster(2, transport=transport), 2, STALL.format(call=call), {1: "comm_stall=1"})
    nodes[0].hear("interrupted")
    nodes[0].hear("raised")
    _, ending = nodes[1].hear_attempt()
    assert ending.startswith("StateError: ") and "withdrawn" in ending, ending
    for node in nodes:
        node.hear("shrunk")
        node.ends()


@both
def test_a_request_can_be_cancelled_inside_the_library(cluster, transport):
    call = """
request = group.allreduce_async(full(1))
later = group.allreduce_async(full(1))
if rank == 0:
    time.sleep(0.5)
    request.cancel()
attempt(request.wait)
attempt(later.wait)
"""
    nodes = start(cluster(2, transport=transport), 2, STALL.format(call=call), {1: "comm_stall=1"})
    for node in nodes:
        for _ in range(2):
            _, ending = node.hear_attempt()
            assert "withdrawn" in ending or "MV_ECANCELED: the request was cancelled" in ending, ending
        node.hear("shrunk")
        node.ends()


@both
def test_a_request_by_the_host_can_be_cancelled_behind_the_library(cluster, transport):
    call = """
request = group.allreduce_async(full(1))
later = group.allreduce_async(full(1, 10))
if rank == 0:
    time.sleep(0.5)
    later.cancel()
attempt(request.wait)
attempt(later.wait)
"""
    nodes = start(cluster(2, transport=transport), 2, STALL.format(call=call), {1: "comm_stall=1"})
    for node in nodes:
        for _ in range(2):
            _, ending = node.hear_attempt()
            assert "withdrawn" in ending or "MV_ECANCELED: the request was cancelled" in ending, ending
        node.hear("shrunk")
        node.ends()


@both
def test_a_rank_that_leaves_ends_the_others_all_reduce(cluster, transport):
    script = """
group = Group(node)
group.allreduce(full(1))
if rank == 0:
    group.allreduce_async(full(1))
    time.sleep(0.5)
    {leaves}
    say("left")
    wait_for_word()
else:
    attempt(group.allreduce, full(1))
    smaller = group.shrink()
    there = full(1)
    smaller.allreduce(there)
    assert float(values(there)) == 2
node.shutdown()
"""
    for leaves, expected in (("group.close()", "has left the group"), ("group.abort('no more data')", "no more data")):
        nodes = start(cluster(3, transport=transport), 3, script.format(leaves=leaves), {1: "comm_stall=1"})
        for node in nodes[1:]:
            _, ending = node.hear_attempt()
            assert ending.startswith("PeerError: ") and expected in ending and "rank 0" in ending, ending
        nodes[0].hear("left")
        nodes[0].tell("end")
        for node in nodes:
            node.ends()


UNEVEN = """
group = Group(node)
for epoch in range(2):
    steps = 3 + 2 * rank
    for step in range(steps):
        arrays = [full(rank + 1), full(1, 5)]
        contributors = group.allreduce_many(arrays, op="avg")
        ranks = [each for each in range(group.size) if 3 + 2 * each > step]
        assert contributors == len(ranks)
        assert abs(float(values(arrays[0])) - sum(each + 1 for each in ranks) / len(ranks)) < 1e-6 and float(values(arrays[1])) == 1
    if rank == 0:
        while coming := group.drain():
            arrays = [full(0, count, dtype) for count, dtype in coming.arrays]
            assert group.allreduce_many(arrays, op=coming.op, draining=True) < group.size
    else:
        group.allreduce_zeros()
    say("epoch", epoch, "reductions", reductions())
node.shutdown()
"""


@both
def test_uneven_endings(cluster, transport):
    """While a rank drains, all go through the host; the next epoch begins between devices."""
    nodes = start(cluster(3, transport=transport), 3, UNEVEN)
    for node in nodes:
        assert [node.hear("epoch", 60) for _ in range(2)] == ["epoch 0 reductions 3", "epoch 1 reductions 6"]
        node.ends()


GROW = """
name = "training"
if {joins}:
    group = Group.join(node, name)
else:
    group = Group(node)
    group.allreduce(full(1))
    assert group.info["collective"] == "nccl"
    say("trains")
    wait_for_word()
    attempt(group.allreduce, full(1))
    group = group.grow(ranks=2, name=name, timeout=60)
there = full(1)
group.allreduce(there)
say("grown to", group.size, "value", float(values(there)), group.info["collective"])
node.shutdown()
"""


def test_a_group_that_has_grown_reduces_between_devices(cluster):
    job = cluster(2, 1, replicas=0)
    server = job.server(0)
    nodes = start(job, 2, GROW.format(joins=False))
    for node in nodes:
        node.hear("trains", 60)
    nodes[1].kill()
    nodes[0].tell("go")
    nodes[0].hear_attempt()
    newcomer = job.python(1, COMMON + GROW.format(joins=True), device_plugin=EMULATION)
    for node in (nodes[0], newcomer):
        assert node.hear("grown", 60) == "grown to 2 value 2.0 nccl"
    for node in (nodes[0], newcomer, server):
        node.ends()


FOREIGN = """
import ctypes

class Foreign:
    \"\"\"An array of another library on a device.\"\"\"
    def __init__(self, tensor):
        self.tensor = tensor
    def __dlpack__(self, **more):
        return self.tensor.__dlpack__(**more)
    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

group = Group(node)
there = full(rank + 1)
view = pv.Tensor.from_dlpack(Foreign(there))
group.allreduce(view)
assert float(values(there)) == 3 and reductions() == 1
slice = full(rank + 1, 2 * LARGE).slice(LARGE, 2 * LARGE)
group.allreduce(slice)
assert float(values(slice)) == 3 and reductions() == 2
say("shared", rank)
node.shutdown()
"""


def test_arrays_of_other_libraries(cluster):
    nodes = start(cluster(2), 2, FOREIGN)
    for node in nodes:
        node.hear("shared", 60)
        node.ends()
