"""polyverso.torch's ways of training without DistributedDataParallel, and its hook for it, with the real PyTorch."""

import re
import subprocess
import sys
import textwrap

import pytest
from conftest import ROOT, run_in_workers, run_workers

BEGIN = """
import torch
import torch.distributed as dist
import polyverso
import polyverso.torch
torch.set_num_threads(1)

def network(seed=3):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

def batches(rank, steps):
    made = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        inputs = torch.randn(32, 8, generator=made)
        yield inputs, inputs[:, :4].sum(1, keepdim=True)

def loss_of(net, batch):
    return torch.nn.functional.mse_loss(net(batch[0]), batch[1])

def train(net, optimizer, rank, steps, after=lambda: None):
    for batch in batches(rank, steps):
        optimizer.zero_grad()
        loss = loss_of(net, batch)
        loss.backward()
        optimizer.step()
        after()
    return loss_of(net, next(batches(99, 1))).item()

def bits(net):
    return [parameter.tolist() for parameter in net.parameters()]
"""


def run(ranks, script):
    return run_in_workers(ranks, BEGIN + textwrap.dedent(script))


@pytest.mark.parametrize("how", ["LocalSGD(net, 4)", "DiLoCo(net, 5)", "DiLoCo(net, 6, fragments=2, overlap=1)"])
def test_rare_exchanges(how):
    said = run(2, f"""
    with polyverso.init() as node:
        rank = node.worker_id
        net = network(seed=rank)  # of which rank 0's counts
        local = polyverso.torch.{how}
        assert bits(net) == bits(network(seed=0))
        loss = train(net, torch.optim.SGD(net.parameters(), lr=0.05), rank, 60 + 7 * rank, local.step)
        local.synchronize()
        print("bits", bits(net)[3], flush=True)
        assert loss < 1 and local.meter.payload_bytes < local.meter.dense_bytes / 3, (loss, local.meter)
        local.close()
    """)
    lines = {line.partition("bits ")[2] for line in said.splitlines() if "bits" in line}
    assert len(lines) == 1 and said.count("bits") == 2, said


def test_elastic_averaging():
    said = run(2, """
    with polyverso.init() as node:
        rank = node.worker_id
        net = network(seed=rank)  # of which rank 0's counts
        elastic = polyverso.torch.ElasticAveraging(net, tau=4, alpha=0.4)
        assert bits(net) == bits(network(seed=0))
        train(net, torch.optim.SGD(net.parameters(), lr=0.05), rank, 60 + 7 * rank, elastic.step)
        elastic.synchronize()
        print("own", bits(net)[3], flush=True)
        elastic.load_center()
        print("centre", bits(net)[3], flush=True)
        assert loss_of(net, next(batches(99, 1))) < 1
        elastic.close()
    """)
    for name, different in (("own ", 2), ("centre ", 1)):
        assert len({line.partition(name)[2] for line in said.splitlines() if name in line}) == different, said


def test_closing_twice_is_closing_once():
    """The second one shut down the program's own node."""
    assert run_workers(1, BEGIN + textwrap.dedent("""
    with polyverso.init() as node:
        for make in (polyverso.torch.ParameterServer, polyverso.torch.ServerOptimizer, lambda net: polyverso.torch.LocalSGD(net, 2)):
            made = make(network())
            made.close()
            made.close()
        node.barrier()
        print("open", flush=True)
    """)).count("open") == 1


def test_weights_in_channels_last():
    assert run(2, """
    with polyverso.init() as node:
        rank = node.worker_id
        for make in (lambda net: polyverso.torch.LocalSGD(net, 1), lambda net: polyverso.torch.ElasticAveraging(net, 1, 0.5),
                     lambda net: polyverso.torch.ServerOptimizer(net, "sgd", learning_rate=0.5)):
            net = torch.nn.Conv2d(2, 3, 2, bias=False).to(memory_format=torch.channels_last)
            net.weight.data[:] = torch.arange(24.).reshape(3, 2, 2, 2)
            made = make(net)
            if isinstance(made, polyverso.torch.ServerOptimizer):
                (net.weight * torch.arange(24.).reshape(3, 2, 2, 2)).sum().backward()
                made.step()
                wanted = 0.5
            else:
                with torch.no_grad():
                    net.weight *= 2 * rank
                made.step()
                wanted = 1 if isinstance(made, polyverso.torch.LocalSGD) else 0.5 + rank
            assert torch.equal(net.weight, wanted * torch.arange(24.).reshape(3, 2, 2, 2)), net.weight
            made.close()
        print("equal", flush=True)
    """).count("equal") == 2


def test_weights_with_gaps():
    """Only copies of them were exchanged, and the weights stayed as they were."""
    assert run(2, """
    def net_of(value):
        net = torch.nn.Linear(3, 2, bias=False)
        net.weight = torch.nn.Parameter(torch.zeros(2, 4)[:, :3])
        net.weight.data.fill_(value)
        assert not net.weight.is_contiguous()
        return net

    with polyverso.init() as node:
        rank = node.worker_id
        net = net_of(1 + rank)
        local = polyverso.torch.LocalSGD(net, 1)
        assert bits(net) == bits(net_of(1))
        net.weight.data += rank
        local.step()
        assert bits(net) == bits(net_of(1.5))
        local.close()
        net = net_of(1 + rank)
        elastic = polyverso.torch.ElasticAveraging(net, 1, 0.25)
        net.weight.data += 4 * rank
        elastic.step()
        assert bits(net) == bits(net_of(1 + 3 * rank))
        elastic.synchronize()
        elastic.load_center()
        assert bits(net) == bits(net_of(2))
        elastic.close()
        net = net_of(1 + rank)
        optimizer = polyverso.torch.ServerOptimizer(net, "sgd", learning_rate=0.5)
        net(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        assert bits(net) == bits(net_of(0.5))
        optimizer.close()
        print("equal", flush=True)
    """).count("equal") == 2


def test_a_graph_from_before_an_exchange_is_an_error():
    """Its gradients were wrong, because autograd did not know that the weights had changed."""
    assert run(1, """
    def refused(net, exchange):
        kept = net(torch.ones(1, 8)).sum()
        exchange()
        try:
            kept.backward()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)

    with polyverso.init():
        net = network()
        local = polyverso.torch.LocalSGD(net, 1)
        assert refused(net, local.step)
        local.close()
        net = network()
        elastic = polyverso.torch.ElasticAveraging(net, 1, 0.5)
        assert refused(net, elastic.step) and refused(net, elastic.load_center)
        elastic.close()
        net = network()
        optimizer = polyverso.torch.ServerOptimizer(net, "sgd")
        def step():
            net(torch.ones(1, 8)).sum().backward()
            optimizer.step()
        assert refused(net, step)
        optimizer.close()
        net = network()
        server = polyverso.torch.ParameterServer(net, name="refused")
        assert refused(net, server.sync)
        server.close()
        print("refused", flush=True)
    """).count("refused") == 1


def test_a_server_optimizer_leaves_the_weights_alone_during_the_backward_pass():
    """A weight that another gradient still needed was overwritten as soon as its own gradient was complete."""
    assert run(1, """
    import time
    with polyverso.init():
        first, second = (torch.nn.Linear(2, 2, bias=False) for _ in range(2))
        for layer in (first, second):
            torch.nn.init.ones_(layer.weight)
        optimizer = polyverso.torch.ServerOptimizer(torch.nn.ModuleList([first, second]), "sgd", learning_rate=0.5)
        values = torch.ones(1, 2)
        fixed = first(values) @ second.weight.detach()
        fixed.register_hook(lambda _: time.sleep(0.1))  # the weight of `second` could arrive meanwhile
        (fixed.sum() + second(values).sum()).backward()
        assert first.weight.grad.tolist() == [[2, 2], [2, 2]], first.weight.grad
        assert second.weight.tolist() == [[1, 1], [1, 1]]
        optimizer.step()
        assert second.weight.tolist() == [[0.5, 0.5], [0.5, 0.5]]
        optimizer.close()
        print("right", flush=True)
    """).count("right") == 1


def test_weights_that_some_workers_do_not_use():
    """The others' step then waited for the unused weight's next gradient, and the workers were a step apart for good."""
    assert run(2, """
    with polyverso.init() as node:
        rank = node.worker_id
        used, sometimes, frozen = (torch.nn.Parameter(torch.zeros(1)) for _ in range(3))
        net = torch.nn.ParameterList([used, sometimes, frozen])
        optimizer = polyverso.torch.ServerOptimizer(net, "sgd", learning_rate=1.0, momentum=0.5)
        (used + sometimes + frozen).sum().backward()
        optimizer.step()
        assert [weight.item() for weight in net] == [-1, -1, -1]
        frozen.requires_grad_(False)
        optimizer.zero_grad()
        (used + sometimes if rank == 0 else used).sum().backward()
        optimizer.step()
        assert [weight.item() for weight in net] == [-2.5, -2, -1], [weight.item() for weight in net]  # half a gradient, half a momentum
        optimizer.zero_grad()
        (used + sometimes).sum().backward()
        optimizer.step()
        assert [weight.item() for weight in net] == [-4.25, -3.5, -1], [weight.item() for weight in net]
        optimizer.close()
        weight, other = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
        optimizer = polyverso.torch.ServerOptimizer(torch.nn.ParameterList([weight, other]), "sgd", kind="dist_async", learning_rate=1.0)
        node.barrier()
        for turn in (0, 1):
            if rank == turn:
                (weight + other if rank == 0 else weight).sum().backward()
                optimizer.step()
                assert [weight.item(), other.item()] == [-1 - rank, -1]
            node.barrier()
        optimizer.close()
        print("together", flush=True)
    """).count("together") == 2


def test_a_server_s_model_keeps_its_dtypes_and_its_memory():
    """It became one of float32, in memory of its own."""
    assert run(2, """
    with polyverso.init() as node:
        rank = node.worker_id
        net = torch.nn.ModuleList([torch.nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last), torch.nn.Linear(3, 1).double(),
                                   torch.nn.Linear(1, 1, bias=False).bfloat16()]).share_memory()
        net[2].weight.data.fill_(1 - 2**-8)  # the next numbers of bfloat16 are 1 and 1 + 2**-7
        about = lambda: [(weight.dtype, weight.stride(), weight.data_ptr(), weight.is_shared()) for weight in net.parameters()]
        before = about()
        server = polyverso.torch.ParameterServer(net, name="several dtypes")
        assert about() == before
        net[0].weight.data += 1 + rank
        if rank == 0:
            net[2].weight.data += 2**-8
        wanted = net[0].weight + 2 - rank
        for _ in range(3):  # once more and nothing has been trained
            server.sync()
            node.barrier()
        assert about() == before and torch.allclose(net[0].weight, wanted)
        # Two changes whose sum bfloat16 does not have: it is rounded in the models, and stays on the servers.
        net[2].weight.data += 2**-7 if rank == 0 else -(2**-8)
        for _ in range(3):
            server.sync()
            node.barrier()
        assert server.table.get()[-1] == 1 + 2**-8 and net[2].weight.item() in (1, 1 + 2**-7), (server.table.get()[-1], net[2].weight)
        server.close()
        print("kept", flush=True)
    """).count("kept") == 2


def test_a_server_s_steps_are_those_of_one_process_with_all_batches():
    assert run(2, """
    with polyverso.init() as node:
        rank = node.worker_id
        net, alone = network(seed=3 + rank), network()
        optimizer = polyverso.torch.ServerOptimizer(net, "sgd", learning_rate=0.05, momentum=0.9)
        local = torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9)
        for one, other in zip(batches(0, 20), batches(1, 20)):
            optimizer.zero_grad()
            loss_of(net, (one, other)[rank]).backward()
            optimizer.step()
            local.zero_grad()
            ((loss_of(alone, one) + loss_of(alone, other)) / 2).backward()
            local.step()
        for mine, its in zip(net.parameters(), alone.parameters()):
            assert torch.allclose(mine, its, atol=1e-5), (mine, its)
        optimizer.close()
        print("equal", flush=True)
    """).count("equal") == 2


def test_asynchronous_servers_and_other_optimizers():
    assert run(2, """
    with polyverso.init() as node:
        rank = node.worker_id
        net = network()
        optimizer = polyverso.torch.ServerOptimizer(net, "adam", kind="dist_async", learning_rate=0.01, compression="int8")
        before = loss_of(net, next(batches(99, 1))).item()
        after = train(net, optimizer, rank, 80)
        assert after < before / 3, (before, after)
        node.barrier()
        optimizer.close()
        print("learned", flush=True)
    """).count("learned") == 2


def test_a_server_of_one_process():
    assert run(1, """
    net = network()
    optimizer = polyverso.torch.ServerOptimizer(net, "sgd", kind="local", learning_rate=0.05)
    before = loss_of(net, next(batches(99, 1))).item()
    assert train(net, optimizer, 0, 80) < before / 3
    optimizer.close()
    assert train(net, torch.optim.SGD(net.parameters(), lr=0.05), 0, 2) < before / 3  # no hook is left
    print("learned", flush=True)
    """).count("learned") == 1


def test_the_servers_hold_the_sum_of_all_changes():
    assert run(2, """
    with polyverso.init() as node:
        rank = node.worker_id
        net = torch.nn.Linear(3, 1, bias=False)
        torch.nn.init.constant_(net.weight, 5.0 + rank)
        server = polyverso.torch.ParameterServer(net)
        assert net.weight.tolist() == [[5, 5, 5]]  # worker 0's
        net.weight.data += 10 ** rank
        server.sync()
        node.barrier()
        server.sync()
        assert net.weight.tolist() == [[16, 16, 16]], net.weight
        server.close()
        print("summed", flush=True)
    """).count("summed") == 2


@pytest.mark.parametrize("how", ["fp16", "bf16", "int8", "2bit threshold=0.05", "topk ratio=0.25", "powersgd rank=2"])
def test_compressed_gradients(how):
    said = run(2, f"""
    dist.init_process_group("polyverso")
    rank = dist.get_rank()
    net = torch.nn.parallel.DistributedDataParallel(network(), bucket_cap_mb=0.0004)
    compressed = polyverso.torch.CompressedGradients(net, "{how}")
    before = loss_of(net, next(batches(99, 1))).item()
    after = train(net, torch.optim.SGD(net.parameters(), lr=0.05), rank, 80)
    print("bits", bits(net)[3], flush=True)
    assert after < before / 2, (before, after)
    assert 0 < compressed.meter.payload_bytes < compressed.meter.dense_bytes, compressed.meter
    compressed.close()
    dist.destroy_process_group()
    """)
    lines = {line.partition("bits ")[2] for line in said.splitlines() if "bits" in line}
    assert len(lines) == 1 and said.count("bits") == 2, said


def test_the_example(tmp_path):
    picture = tmp_path / "losses.svg"
    command = [sys.executable, "-W", "ignore", str(ROOT / "examples" / "torch" / "compare.py"), "--steps", "200", "--plot", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(\S.*?) +([\d.]+) +[\d.]+ +[\d.]+ +([\d.]+)$", done.stdout, re.MULTILINE)
    loss, sent = {name: float(loss) for name, loss, _ in rows}, {name: float(sent) for name, _, sent in rows}
    assert loss["DDP, Polyverso"] == loss["DDP, Gloo"]
    assert abs(loss["DDP, Polyverso, int8"] - loss["DDP, Gloo"]) < 0.01 and loss["DiLoCo, H = 50"] < 2
    assert sent["DDP, Polyverso, int8"] < 0.27 * sent["DDP, Gloo"]
    assert sent["DiLoCo, H = 50"] < 0.03 * sent["DDP, Gloo"]
    assert "<svg" in picture.read_text()
