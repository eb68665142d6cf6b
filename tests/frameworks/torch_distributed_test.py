"""The backend of torch.distributed, with the real PyTorch: its results against Gloo's, and what Gloo has no word for."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch
from conftest import run_in_workers, run_workers
from ports import free_ports

import polyverso.torch  # noqa: F401  (registers the backend)

NEW = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 6)

BEGIN = """
import os, sys, time
import torch
import torch.distributed as dist
import polyverso.torch
torch.set_num_threads(1)
dist.init_process_group("polyverso")
rank, ranks = dist.get_rank(), dist.get_world_size()
"""
END = """
dist.destroy_process_group()
"""


def run(ranks, script):
    """Runs the script in a process group of so many ranks, without torchrun. Returns what was printed."""
    return run_in_workers(ranks, BEGIN + textwrap.dedent(script) + END)


COLLECTIVES = """
gloo = dist.new_group(backend="gloo")
ours = dist.group.WORLD

def tensor(dtype, shape=(3, 4), seed=0):
    made = torch.Generator().manual_seed(10 * rank + seed)
    values = torch.randint(1, 4, shape, generator=made)
    return values > 1 if dtype == torch.bool else values.to(dtype)

def same(what, operation):
    results = [operation(group) for group in (ours, gloo)]
    for one, other in zip(*results):
        assert one.dtype == other.dtype and torch.equal(one, other), (rank, what, one, other)

def all_reduced(given, op, gaps=False):
    def operation(group):
        copy = given.clone().t() if gaps else given.clone()
        dist.all_reduce(copy, op=op, group=group)
        return [copy]
    return operation

ops = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
for dtype in (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8, torch.int8):
    for op in ops:
        same((dtype, op), all_reduced(tensor(dtype), op))
for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
    same(op, all_reduced(tensor(torch.int32), op))
same("no dimensions", all_reduced(torch.tensor(float(rank)), ops[0]))
same("no elements", all_reduced(torch.ones(0, 3), ops[0]))
dist.all_gather([torch.empty(0, dtype=torch.bfloat16) for _ in range(ranks)], torch.empty(0, dtype=torch.bfloat16))
same("a complex number", all_reduced(torch.full((2,), 1 + rank * 1j), ops[0]))

# Gloo takes no tensors with gaps.
gaps = tensor(torch.float32).t()
dist.all_reduce(gaps)
assert torch.equal(gaps, sum(torch.randint(1, 4, (3, 4), generator=torch.Generator().manual_seed(10 * r)) for r in range(ranks)).t().float())

def broadcast(group):
    values = [tensor(dtype, seed=1) for dtype in (torch.float32, torch.int64, torch.uint8)]
    for value in values:
        dist.broadcast(value, src=ranks - 1, group=group)
    return values

def reduced(group):
    value = tensor(torch.float32)
    dist.reduce(value, dst=1, group=group)
    return [value] if rank == 1 else []

def gathered(group):
    into = [torch.zeros(3, 4) for _ in range(ranks)]
    dist.all_gather(into, tensor(torch.float32), group=group)
    return into

def objects(group):
    into = [None] * ranks
    dist.all_gather_object(into, {"rank": rank, "words": ["w"] * rank}, group=group)
    several = [rank, "one"] if rank == 0 else [None, None]
    dist.broadcast_object_list(several, src=0, group=group)
    return [torch.tensor([len(str(part)) for part in into + several])]

def gathered_at_one(group):
    results = []
    for dtype in (torch.float32, torch.int64, torch.int8):
        into = [torch.zeros(3, 4, dtype=dtype) for _ in range(ranks)] if rank == 1 else None
        dist.gather(tensor(dtype), into, dst=1, group=group)
        results += into or []
    return results

def scattered(group):
    value = torch.zeros(4)
    dist.scatter(value, [tensor(torch.float32, (4,), seed=r) for r in range(ranks)] if rank == 0 else None, src=0, group=group)
    return [value]

def exchanged(group):
    even, uneven = torch.zeros(2 * ranks, 3), torch.zeros(sum(r + rank for r in range(ranks)), 2)
    dist.all_to_all_single(even, tensor(torch.float32, (2 * ranks, 3)), group=group)
    splits = [r + rank for r in range(ranks)]
    dist.all_to_all_single(uneven, tensor(torch.float32, (sum(splits), 2)), splits, splits, group=group)
    return [even, uneven]

def passed_on(group):
    if ranks == 1:
        return []
    values = [torch.zeros(3), torch.zeros(50_000, dtype=torch.int64)]
    for tag, value in enumerate(values):
        work = dist.isend(torch.full_like(value, rank + 1), (rank + 1) % ranks, group=group, tag=tag)
        dist.recv(value, (rank - 1) % ranks, group=group, tag=tag)
        work.wait()
    sent, got = torch.full((3,), rank + 10.0), torch.zeros(3)
    ends = [dist.P2POp(dist.isend, sent, (rank + 1) % ranks, group), dist.P2POp(dist.irecv, got, (rank - 1) % ranks, group)]
    for work in dist.batch_isend_irecv(ends):
        work.wait()
    assert got.tolist() == [(rank - 1) % ranks + 10] * 3
    return [*values, got]

def received_from_any(group):
    values = [torch.zeros(2) for _ in range(ranks - 1)]
    if rank > 0:
        dist.send(torch.full((2,), float(rank)), 0, group=group)
    else:
        sources = [dist.recv(value, group=group) for value in values]
        assert sources == [int(value[0]) for value in values] and sorted(sources) == list(range(1, ranks)), sources
        return sorted(values, key=lambda value: value[0])
    return []

for operation in (broadcast, reduced, gathered, objects, gathered_at_one, scattered, exchanged, passed_on, received_from_any):
    same(operation.__name__, operation)

# What Gloo of some version lacks.
whole = torch.zeros(ranks, 3)
(dist.all_gather_into_tensor if hasattr(dist, "all_gather_into_tensor") else dist._all_gather_base)(whole, torch.full((3,), rank + 1.0))
assert whole[:, 0].tolist() == [r + 1.0 for r in range(ranks)]
part, parts = torch.zeros(3), torch.arange(3.0 * ranks) + rank
before = parts.clone()
(dist.reduce_scatter_tensor if hasattr(dist, "reduce_scatter_tensor") else dist._reduce_scatter_base)(part, parts)
expected = ranks * torch.arange(3.0 * ranks) + sum(range(ranks))
assert torch.equal(part, expected.view(ranks, 3)[rank]) and torch.equal(parts, before)
dist.reduce_scatter(part, list(parts.view(ranks, 3)), op=dist.ReduceOp.AVG)
assert torch.equal(part, expected.view(ranks, 3)[rank] / ranks)
for dtype in (torch.bfloat16, torch.float16):
    value = torch.full((5,), rank + 1, dtype=dtype)
    dist.all_reduce(value, op=dist.ReduceOp.AVG)
    assert value.tolist() == [(ranks + 1) / 2] * 5
flags = torch.tensor([rank == 0, True, False])
dist.all_reduce(flags)
assert flags.tolist() == [True, True, False]
dist.all_reduce(flags, op=dist.ReduceOp.PRODUCT)
assert flags.tolist() == [True, True, False]
into = [torch.zeros(2, dtype=torch.int16) for _ in range(ranks)]
dist.all_gather(into, torch.tensor([rank, -rank], dtype=torch.int16))
assert [part.tolist() for part in into] == [[r, -r] for r in range(ranks)]
for dtype in (torch.float32, torch.bfloat16, torch.int16, torch.bool):
    into = [torch.zeros(1 + rank, 2, dtype=dtype) for _ in range(ranks)]  # rank r gets 1 + r rows from all
    dist.all_to_all(into, [torch.full((1 + r, 2), rank + r, dtype=dtype) for r in range(ranks)])
    assert [part.tolist() for part in into] == [torch.full((1 + rank, 2), r + rank, dtype=dtype).tolist() for r in range(ranks)]
    value = torch.zeros(2, dtype=dtype)
    dist.scatter(value, [torch.full((2,), r, dtype=dtype) for r in range(ranks)] if rank == 0 else None)
    assert value.tolist() == torch.full((2,), rank, dtype=dtype).tolist()
    into = [torch.zeros(2, dtype=dtype) for _ in range(ranks)] if rank == 0 else None
    dist.gather(value, into)
    if rank == 0:
        assert [part.tolist() for part in into] == [torch.full((2,), r, dtype=dtype).tolist() for r in range(ranks)]
dist.all_reduce_coalesced([whole, part])
assert whole[:, 0].tolist() == [ranks * (r + 1.0) for r in range(ranks)]
dist.barrier()
print("same", dist.get_backend(), flush=True)
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_collectives_have_gloo_s_results(ranks):
    script = COLLECTIVES if ranks > 1 else COLLECTIVES.replace("dst=1", "dst=0").replace("rank == 1", "rank == 0").replace("ranks == 0", "ranks == 1")
    assert run(ranks, script).count("same polyverso") == ranks


def test_what_is_refused():
    said = run(2, """
    for tensor, op in [(torch.zeros(2, dtype=torch.int16), "SUM"), (torch.zeros(2, dtype=torch.int32), "AVG"), (torch.zeros(2), "BAND"),
                       (torch.zeros(2).to_sparse(), "SUM")]:
        try:
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
            print("accepted", op)
        except (TypeError, ValueError, NotImplementedError) as error:
            print(error)
    try:
        dist.all_gather([torch.zeros(3)] * ranks, torch.zeros(2))
    except (ValueError, RuntimeError) as error:
        print(error)
    try:
        dist.all_reduce(torch.zeros(2 + rank))
    except polyverso.StateError as error:
        print(error.name)
    dist.all_reduce(torch.zeros(2))
    """)
    for text in ("torch.int16 can't be reduced", "can't be averaged", "BAND of torch.float32 is not supported", "this one is sparse", "MV_EDISAGREE"):
        assert said.count(text) == 2, said
    assert "accepted" not in said


def test_a_barrier_whose_time_runs_out_names_the_missing_ranks():
    """PyTorch's own tests of this want Gloo's words."""
    said = run(3, """
    import datetime
    limit = datetime.timedelta(seconds=0.5)
    for group in (dist.new_group([0, 2], timeout=limit), dist.new_group(timeout=limit)):
        if rank == 0:
            began = time.monotonic()
            try:
                dist.barrier(group=group)
            except polyverso.TimeoutError as error:
                assert time.monotonic() - began >= 0.49
                print(error)
        dist.barrier()
    """)
    first, second = [line for line in said.splitlines() if "MV_ETIMEOUT" in line]
    assert "waits for worker 2 (rank 2" in first and "worker 1" not in first, first
    assert "waits for worker 1 (rank 1" in second and "worker 2 (rank 2" in second, second


def test_works_are_tested_while_other_threads_wait_for_them():
    said = run(2, """
        for round in range(400):
            works = [dist.all_reduce(torch.full((1 << shift,), 1.0), async_op=True) for shift in (0, 8, 16)]
            futures = [work.get_future() for work in works]  # a thread waits for each
            while not all(work.is_completed() for work in works):
                pass
            assert [float(future.wait()[0][0]) for future in futures] == [2.0] * 3
        print("all of them", flush=True)
        """)
    assert said.count("all of them") == 2


def test_asynchronous_works_end_in_order():
    said = run(3, """
    values = [torch.full((1 << shift,), 1.0) for shift in range(16)]
    works = [dist.all_reduce(value, async_op=True) for value in values]
    futures = [work.get_future() for work in works[::2]]
    done = []
    for place, future in enumerate(futures):
        future.add_done_callback(lambda _, place=place: done.append(place))
    dist.barrier()
    assert all(work.is_completed() and work.is_success() for work in works)
    assert all(bool((value == 3).all()) for value in values)
    assert [future.wait()[0] is value for future, value in zip(futures, values[::2])] == [True] * 8
    deadline = time.monotonic() + 30  # a future's callbacks run after those who wait for it have been woken
    while len(done) < 8 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert done == list(range(8)), done
    doubled = dist.all_reduce(values[0], async_op=True).get_future().then(lambda future: 2 * future.value()[0])
    assert doubled.wait().tolist() == [18]
    gathered = [torch.zeros(2, 2).t() for _ in range(ranks)]  # results are copied when the work ends, whoever waits
    work = dist.all_gather(gathered, torch.full((2, 2), rank * 1.0), async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    assert [int(part[0, 1]) for part in gathered] == [0, 1, 2]
    print("in order", flush=True)
    """)
    assert said.count("in order") == 3


def test_callbacks_of_futures_may_wait():
    """PyTorch's PowerSGD hook waits in a callback for an operation that it begins there."""
    said = run(2, """
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    values = [torch.ones(3) for _ in range(3)]
    # `then` calls at once if the operation is done: the callback may not need what comes after it.
    first, later = (dist.all_reduce(value, async_op=True).get_future() for value in (values[0], values[2]))

    def callback(_):
        dist.all_reduce(values[1], async_op=True).get_future().wait()
        return later.wait()[0]

    first = first.then(callback)
    assert first.wait().tolist() == values[1].tolist() == [2] * 3
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 40))
    net.register_comm_hook(powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        net(torch.randn(8, 40)).sum().backward()
    received = torch.zeros(2)
    if rank == 0:  # rank 1 sends after the operation whose future comes later
        futures = [work.get_future() for work in (dist.irecv(received, 1), dist.all_reduce(values[0], async_op=True))]
        futures[1].wait()
        futures[0].wait()
        assert received.tolist() == [5, 5]
    else:
        dist.all_reduce(values[0])
        dist.send(torch.full((2,), 5.0), 0)
    print("waited", flush=True)
    """)
    assert said.count("waited") == 2


def test_the_input_of_a_reduce_scatter_may_be_read_meanwhile():
    said = run(2, """
    given = torch.full((2000,), rank + 1.0)
    for _ in range(20):
        results = [torch.zeros(1000) for _ in range(3)]
        ops = [dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.SUM]
        reduce_scatter = dist.reduce_scatter_tensor if hasattr(dist, "reduce_scatter_tensor") else dist._reduce_scatter_base
        works = [reduce_scatter(result, given, op=op, async_op=True) for result, op in zip(results, ops)]
        assert bool((given == rank + 1).all())
        for work, result, wanted in zip(works, results, (3, 2, 3)):
            work.wait()
            assert bool((result == wanted).all()), result
    assert bool((given == rank + 1).all())
    print("read", flush=True)
    """)
    assert said.count("read") == 2


def test_a_script_may_end_right_after_a_future():
    """The thread that sets futures was inside PyTorch when the interpreter ended, which aborted every fourth process."""
    for _ in range(4):
        run_workers(2, BEGIN + textwrap.dedent("""
        value = torch.ones(2)
        works = [dist.all_reduce(value, async_op=True) for _ in range(20)]
        futures = [work.get_future() for work in works]
        futures[-1].wait()
        """))


def test_groups_of_some_ranks():
    said = run(3, """
    pair, alone = dist.new_group([0, 2]), dist.new_group([1])
    value = torch.tensor([1.0 + rank])
    if rank != 1:
        assert dist.get_rank(pair) == (0, None, 1)[rank] and dist.get_world_size(pair) == 2
        dist.all_reduce(value, group=pair)
        dist.broadcast(value, src=2, group=pair)
        assert value.item() == 4
    else:
        dist.all_reduce(value, group=alone)
        assert value.item() == 2
    dist.all_reduce(value)
    assert value.item() == 10
    if NEW:
        for group in (pair, alone):
            if dist.get_rank(group) >= 0:
                dist.destroy_process_group(group)
        dist.barrier()
    print("grouped", flush=True)
    """.replace("NEW", str(NEW)))
    assert said.count("grouped") == 3


TRAINING = """
from torch.nn.parallel import DistributedDataParallel

def losses(group):
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.BatchNorm1d(50), torch.nn.ReLU(), torch.nn.Linear(50, 1))
    model = DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.004)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(rank)
    for step in range(30):
        inputs = torch.randn(16, 20, generator=data)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()

ours, gloo = list(losses(dist.group.WORLD)), list(losses(dist.new_group(backend="gloo")))
assert ours[-1] < ours[0] / 2
if ranks == 2:
    assert ours == gloo, (ours, gloo)  # a sum of two has one order
assert max(abs(one - other) for one, other in zip(ours, gloo)) < 1e-5
print("trained", flush=True)
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_ddp_has_gloo_s_losses(ranks):
    assert run(ranks, TRAINING).count("trained") == ranks


@pytest.mark.skipif(not NEW, reason="needs torch.compiler")
def test_compiled_models_have_gloo_s_losses():
    """torch.compile traced into the backend's methods, and stopped with an InternalTorchDynamoError."""
    said = run(2, """
    from torch.nn.parallel import DistributedDataParallel

    def losses(group):
        torch.manual_seed(3)
        net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
        model = torch.compile(DistributedDataParallel(net, process_group=group), backend="aot_eager")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        torch.manual_seed(rank)
        for step in range(3):
            loss = (model(torch.randn(4, 3)) - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss.item()

    ours, gloo = list(losses(dist.group.WORLD)), list(losses(dist.new_group(backend="gloo")))
    assert ours == gloo, (ours, gloo)
    print("compiled", flush=True)
    """)
    assert said.count("compiled") == 2


@pytest.mark.skipif(not NEW, reason="FSDP2 came with PyTorch 2.6")
def test_fsdp2_has_gloo_s_losses():
    said = run(2, """
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    import torch.distributed._functional_collectives as functional

    def losses(group):
        torch.manual_seed(3)
        net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in (net[0], net[2], net):
            fully_shard(layer, mesh=mesh)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        torch.manual_seed(rank)
        for step in range(10):
            inputs = torch.randn(8, 16)
            loss = (net(inputs) - inputs[:, :4]).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss.item()

    ours, gloo = list(losses(dist.group.WORLD)), list(losses(dist.new_group(backend="gloo")))
    assert len(ours) == 10 and ours == gloo, (ours, gloo)
    assert (functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD) + 0).tolist() == [2, 2, 2]
    print("sharded", flush=True)
    """)
    assert said.count("sharded") == 2


# ------------------------------------------------------------------ how processes find each other


def start(script, store, ranks, before="", **environment):
    """Starts the ranks as a script's own launcher would: the rendezvous is a file."""
    begin = before + BEGIN.replace('"polyverso")', f'"polyverso", init_method="file://{store}", rank=int(sys.argv[1]), world_size={ranks})')
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POLYVERSO_")}
    return [
        subprocess.Popen(
            [sys.executable, "-c", begin + textwrap.dedent(script), str(rank)], env={**clean, **environment}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(ranks)
    ]


@pytest.fixture
def processes():
    started = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_a_rendezvous_by_a_file_and_a_second_one(tmp_path, processes):
    processes += start("""
    for each in range(2):  # a file for each: PyTorch deletes one when the last rank's store ends, maybe after a new one has begun
        value = torch.ones(3)
        dist.all_reduce(value)
        print(value[0].item())
        dist.destroy_process_group()
        del value
        dist.init_process_group("polyverso", init_method=f"file://STORE{each}", rank=rank, world_size=ranks)
    dist.destroy_process_group()
    """.replace("STORE", str(tmp_path / "second")), tmp_path / "first", 2)
    for process in processes:
        out, error = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "2.0\n2.0\n"), error


def test_under_polyverso_run_an_address_counts_and_the_run_s_own_cluster_stays(tmp_path):
    """The ranks made a cluster of their own, but rank 0 dropped its socket, because the run's address was another one."""
    said = run_workers(2, BEGIN.replace('dist.init_process_group("polyverso")', f"""
import polyverso
before = {{name: value for name, value in os.environ.items() if name.startswith("POLYVERSO_")}}
rank = int(os.environ["RANK"])
for place in (f"file://{tmp_path}/store", "tcp://127.0.0.1:{free_ports()}"):
    dist.init_process_group("polyverso", init_method=place, rank=1 - rank, world_size=2)
    value = torch.ones(1)
    dist.all_reduce(value)
    assert (value.item(), dist.get_rank()) == (2, 1 - rank)
    dist.destroy_process_group()
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="{free_ports()}")  # as in PyTorch's tutorial
dist.init_process_group("polyverso", rank=rank, world_size=2)
""") + """
value = torch.ones(1)
dist.all_reduce(value)
dist.destroy_process_group()
assert before == {name: value for name, value in os.environ.items() if name.startswith("POLYVERSO_")}
with polyverso.init() as node:
    assert (node.rank, node.num_workers) == (rank, 2)
    node.barrier()
print(f"sum {value.item()}", flush=True)
""")
    assert said.count("sum 2.0") == 2, said


def test_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(BEGIN + 'value = torch.ones(1)\ndist.all_reduce(value)\nprint(f"sum {value.item()}\\n", end="", flush=True)\n' + END)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POLYVERSO_")}
    done = subprocess.run(command, env={**clean, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode and "in to_map" in done.stderr:
        pytest.skip("torchrun of PyTorch 1.13 does not start on Python 3.11")
    assert (done.returncode, done.stdout.count("sum 2.0")) == (0, 2), done.stdout + done.stderr


def test_several_hosts(tmp_path, processes):
    """Each rank takes itself for another host: they listen on all interfaces, and go by MASTER_ADDR."""
    before = "import socket, sys\nsocket.gethostname = lambda: 'host' + sys.argv[1]\n"
    processes += start("""
    value = torch.ones(3)
    dist.all_reduce(value)
    print(value[0].item())
    dist.destroy_process_group()
    """, tmp_path / "store", 2, before, MASTER_ADDR="127.0.0.1")
    for process in processes:
        out, error = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "2.0\n"), error


# ------------------------------------------------------------------ lost ranks


@pytest.mark.parametrize("what", ["dist.all_reduce(torch.zeros(1000))", "step()", "dist.recv(torch.zeros(2), 1)"])
def test_a_killed_rank_is_named_within_a_second(what, tmp_path, processes):
    processes += start(f"""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
    def step():
        model(torch.ones(2, 100)).sum().backward()
    step()
    print(os.getpid(), flush=True)
    try:
        while True:
            {what}
    except (RuntimeError, polyverso.PeerError) as error:
        print(time.time(), type(error).__name__, " ".join(str(error).split()), flush=True)
    survivors = dist.group.WORLD.group.shrink()
    print(survivors.size, survivors.allreduce(torch.ones(1)).item(), flush=True)
    """, tmp_path / "store", 3)
    pids = [int(process.stdout.readline()) for process in processes]
    killed = time.time()
    os.kill(pids[1], signal.SIGKILL)
    for place in (0, 2):
        line = processes[place].stdout.readline()
        assert line, processes[place].stderr.read()
        assert float(line.split()[0]) - killed < 1, line
        assert "rank 1 of the group is lost: worker 1" in line, line
        assert processes[place].stdout.readline() == "2 2.0\n", processes[place].communicate()
