"""PyTorch's adapter, and scripts written for dpwa."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from conftest import introduce, lone

from polyverso import gossip
from polyverso.gossip.torch import TorchAdapter

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


def network(value, device="cpu"):
    """A network of several dtypes, with one non-contiguous weight."""
    layers = [torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2).to(torch.bfloat16), torch.nn.Linear(2, 2).half()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(2, 2, dtype=torch.complex64)).to(device)
    net[0].weight.data = net[0].weight.data.t().contiguous().t()
    assert not net[0].weight.is_contiguous()
    for parameter in net.parameters():
        torch.nn.init.constant_(parameter, value)
    return net


def pair(nets, buffers=False, **settings):
    one, other = (TorchAdapter(net, name, lone(name, **settings), buffers) for net, name in zip(nets, "ab"))
    introduce(one, other)
    return one, other


def all_are(net, value):
    return all(bool((parameter == value).all()) for parameter in net.parameters())


@pytest.mark.parametrize("device", DEVICES)
def test_parameters_are_averaged_where_they_are(device):
    nets = [network(1.0, device), network(3.0, device)]
    nets[1][1].running_mean.fill_(4.0)
    memory = [parameter.data_ptr() for parameter in nets[0].parameters()]
    one, other = pair(nets)
    for _ in range(2):  # the second time reuses the copies
        other.update_send(0.5)
        one.update_send(0.5)
        assert one.update_wait(0.4) == 0.5
    assert all_are(nets[0], 2.5)
    assert memory == [parameter.data_ptr() for parameter in nets[0].parameters()]
    assert all(parameter.is_leaf and parameter.requires_grad for parameter in nets[0].parameters())
    assert bool((nets[0][1].running_mean == 0).all())  # not a parameter
    one.close()
    other.close()


def test_only_what_numpy_cannot_reach_is_copied():
    net = network(1.0)
    adapter = TorchAdapter(net, "a", lone("a"))
    adapter.update_send(1)
    assert [copy.shape for copy in adapter._copies.values()] == [net[0].weight.shape]
    net[0].weight.data = torch.ones(5, 3).t().contiguous().t()  # another size from now on
    adapter.update_send(1)
    assert [copy.shape for copy in adapter._copies.values()] == [(5, 3)]
    adapter.close()


def test_copies_from_a_device_are_waited_for_once(monkeypatch):
    """Simulates CUDA, where copies to pinned memory are asynchronous until the stream is synchronized."""
    waited = []

    class Stream:
        def synchronize(self):
            waited.append([bool((copy == 1).all()) for copy in adapter._copies.values()])

    monkeypatch.setattr("polyverso.gossip.torch._is_plain", lambda tensor: False)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    net = network(1.0)
    adapter = TorchAdapter(net, "a", lone("a"))
    adapter.update_send(1)
    assert waited == [[True] * len(list(net.parameters()))]
    adapter.close()


@pytest.mark.parametrize("device", DEVICES)
def test_buffers_too(device):
    nets = [network(1.0, device), network(3.0, device)]
    nets[0][1].num_batches_tracked.fill_(10)
    nets[1][1].num_batches_tracked.fill_(20)
    nets[1][1].running_mean.fill_(4.0)
    one, other = pair(nets, buffers=True)
    other.update_send(0.5)
    one.update_send(0.5)
    assert one.update_wait(0.5) == 0.5
    assert bool((nets[0][1].running_mean == 2).all())
    assert nets[0][1].num_batches_tracked.item() == 15
    one.close()
    other.close()


class Masked(torch.nn.Module):
    """A module with buffers that cannot be averaged."""

    def __init__(self, value):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((2, 3), value))
        self.register_buffer("mean", torch.full((3,), value))
        self.register_buffer("mask", torch.full((2, 2), float("-inf")).triu(1))
        self.register_buffer("seen", torch.tensor([True, False]))
        self.register_buffer("short", torch.zeros(2, dtype=torch.int16))
        self.register_buffer("places", torch.arange(4))


def test_buffers_that_are_masks_stay_as_they_are():
    nets = [Masked(1.0), Masked(3.0)]
    one, other = pair(nets, buffers=True)
    other.update_send(0.5)
    one.update_send(0.5)
    assert one.update_wait(0.5) == 0.5
    assert all_are(nets[0], 2) and bool((nets[0].mean == 2).all())
    assert nets[0].seen.tolist() == [True, False] and bool(torch.isinf(nets[0].mask).any())
    one.close()
    other.close()


def test_autograd_sees_that_parameters_were_averaged():
    nets = [torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)]
    one, other = pair(nets)
    other.update_send(1)
    one.update_send(1)
    loss = (nets[0].weight ** 2).sum()
    assert one.update_wait(1) == 0.5
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    one.close()
    other.close()


@pytest.mark.parametrize("settings, factor", [
    ({"constant": {"value": 0.25}}, 0.25),
    ({"interpolation": "clock"}, 2 / 3),
    ({"interpolation": "loss"}, 0.4 / (0.4 + 1.6)),
    ({"interpolation": "loss", "loss_weighting": "peer"}, 1.6 / (0.4 + 1.6)),
    ({"constant": {"value": 0.5}, "divergence_threshold": 0.8}, 0.25),
])
def test_the_methods(settings, factor):
    nets = [torch.nn.Linear(50, 20) for _ in range(2)]
    expected = [(1 - factor) * own + factor * peer for own, peer in zip(*(list(net.parameters()) for net in nets))]
    one, other = pair(nets, **settings)
    for _ in range(2):
        other.update_send(1.6)
    one.update_send(2.0)
    assert one.update_wait(0.4) == pytest.approx(factor)
    assert all(torch.allclose(own, value, atol=1e-6) for own, value in zip(nets[0].parameters(), expected))
    assert one.gossip.state["clock"] == pytest.approx(factor * 2 + (1 - factor) * 1)
    one.close()
    other.close()


def test_a_node_of_numpy_in_between():
    net, array = torch.nn.Linear(4, 1, bias=False), np.full((1, 4), 3.0, np.float32)
    torch.nn.init.constant_(net.weight, 1.0)
    one, other = TorchAdapter(net, "a", lone("a")), gossip.ArrayAdapter([array], "b", lone("b"))
    introduce(one, other)
    for node in (other, one):
        node.update_send(1)
    other.update_wait(1)
    one.update_wait(1)
    assert bool((net.weight == 2).all()) and (array != 1).all()
    one.close()
    other.close()


def test_another_network_s_parameters_are_refused_and_training_goes_on(capfd):
    nets = [torch.nn.Linear(3, 2), torch.nn.Linear(4, 2)]
    torch.nn.init.constant_(nets[0].weight, 1.0)
    one, other = pair(nets, timeout_ms=300)
    for _ in range(3):
        other.update_send(1)
        one.update_send(1)
        assert one.update_wait(1) == 0
    assert bool((nets[0].weight == 1).all())
    assert one.gossip.peers[0]["problem"]
    with pytest.raises(Exception, match="NaN"):
        torch.nn.init.constant_(nets[0].weight, float("nan"))
        one.update_send(1)
    one.close()
    other.close()


def test_processes_of_a_data_loader_take_no_part():
    """They are forked from a process with an open node, and end while it runs on."""
    samples = [(torch.randn(3), torch.zeros(())) for _ in range(64)]
    nets = [torch.nn.Linear(3, 1) for _ in range(2)]
    one, other = pair(nets)
    other.update_send(1)
    for epoch in range(1, 3):
        for inputs, _ in torch.utils.data.DataLoader(samples, batch_size=8, num_workers=2):
            one.update_send(1)
            nets[0](inputs).sum().backward()
            assert one.update_wait(1) == 0.5
        assert one.gossip.state["averaged"] == 8 * epoch
    one.close()
    other.close()


def test_a_method_of_the_programs_own_computes_an_adapters_factor(monkeypatch, tmp_path):
    """As for dpwa's connections: the class that replaces a method, or an object that is assigned."""
    from dpwa import dpwa
    from dpwa.adapters.pytorch import DpwaPyTorchAdapter

    class Tenth(dpwa.ConstantInterpolation):
        def __call__(self, clock, peer_clock, loss, peer_loss):
            return 0.1

    monkeypatch.setitem(dpwa.INTERPOLATION_METHODS, "constant", Tenth)
    nets = [network(value) for value in (1.0, 3.0)]
    made = []
    for net, name in zip(nets, "ab"):
        file = tmp_path / name
        file.write_text(json.dumps(lone(name, constant={"value": 0.5})))
        made.append(DpwaPyTorchAdapter(net, name, str(file)))
    introduce(*made)
    one, other = made
    for factor in (0.1, 0.75):
        before = [parameter.detach().clone() for parameter in nets[0].parameters()]
        other.update_send(1)
        one.update_send(1)
        clock = one.gossip.clock
        assert one.update_wait(1) == factor
        for was, parameter, theirs in zip(before, nets[0].parameters(), nets[1].parameters()):
            assert torch.equal(parameter, (factor * theirs + (1 - factor) * was).detach())
        assert one.gossip.clock == factor * other.gossip.clock + (1 - factor) * clock
        one.interpolation = lambda clock, peer_clock, loss, peer_loss: 0.75
    one.close()
    other.close()


# The script of dpwa's page; the tests above cover the parts that it omits.
DPWA_SCRIPT = """
import sys
import torch
from dpwa.adapters.pytorch import DpwaPyTorchAdapter

name, config_file = sys.argv[1:]
torch.manual_seed(int(name[1:]))
net = torch.nn.Linear(8, 1)
inputs = torch.randn(256, 8)
targets = inputs.sum(1, keepdim=True)
training_samples = list(zip(inputs.split(8), targets.split(8))) * 50
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

def train_batch(batch):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss.item()

loss = 1.0
conn = DpwaPyTorchAdapter(net, name, config_file)
# Training loop
for batch in training_samples:
    conn.update_send(loss)
    loss = train_batch(batch)
    conn.update_wait(loss)
print("ended with", loss)
"""


def test_a_script_written_for_dpwa(sample, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(DPWA_SCRIPT))
    nodes = [subprocess.Popen([sys.executable, script, f"w{place}", sample], stdout=subprocess.PIPE, text=True) for place in (1, 2, 3, 4)]
    try:
        ends = [node.communicate(timeout=120)[0] for node in nodes]
        assert [node.returncode for node in nodes] == [0] * 4
    finally:
        for node in nodes:
            node.kill()
    assert all(float(end.split()[-1]) < 0.05 for end in ends)
