"""polyverso.gossip, and the stand-in for dpwa."""

import pathlib
import socket
import sys

import numpy as np
import pytest

import polyverso
from polyverso import gossip

COMPAT = pathlib.Path(polyverso.__file__).parent.parent / "compat"


def lone(name, **settings):
    return {"nodes": [{"name": name, "host": "127.0.0.1", "port": 0}], "timeout_ms": 20000, **settings}


def port_of(node):
    return int(node.state["address"].rsplit(":", 1)[1])


def introduce(*nodes):
    for node in nodes:
        for other in nodes:
            if node is not other:
                node.add_peer(other.name, "127.0.0.1", port_of(other))


def free_ports(count):
    """Ports that were free a moment ago: a file names them before anybody listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def test_arrays_are_averaged_in_place():
    own = [np.zeros((2, 3), np.float32), np.arange(4.0)]
    other = [np.ones((2, 3), np.float32), np.full(4, 8.0)]
    a, b = gossip.ArrayAdapter(own, "a", lone("a", constant={"value": 0.25})), gossip.ArrayAdapter(other, "b", lone("b"))
    a.gossip.add_peer("b", "127.0.0.1", port_of(b.gossip))
    b.update_send(1)
    a.update_send(1)
    assert a.update_wait(1) == 0.25
    assert np.array_equal(own[0], np.full((2, 3), 0.25, np.float32))
    assert np.allclose(own[1], 0.25 * 8 + 0.75 * np.arange(4.0))
    assert b.update_wait(1) == 0  # it knows nobody
    state = a.gossip.state
    assert state["clock"] == 1 and state["averaged"] == 1 and state["last"] == "b"
    assert [peer["fetched"] for peer in a.gossip.peers] == [1]
    assert "score 1000" in str(a.gossip)
    a.close()
    b.close()


def test_arrays_that_are_not_contiguous():
    own, other = np.zeros((4, 6))[:, ::2], np.full((4, 6), 2.0)[:, ::2]
    a, b = gossip.ArrayAdapter([own], "a", lone("a")), gossip.ArrayAdapter([other], "b", lone("b"))
    introduce(a.gossip, b.gossip)
    b.update_send(1)
    a.update_send(1)
    assert a.update_wait(1) == 0.5
    assert np.array_equal(own, np.ones((4, 3)))
    a.close()
    b.close()


def test_errors_are_python_s():
    with pytest.raises(polyverso.ArgumentError, match="timeout_ms"):
        gossip.Gossip({"timeout_ms": -5}, "a")
    with pytest.raises(polyverso.ArgumentError, match="no/such.yaml"):
        gossip.Gossip(pathlib.Path("no/such.yaml"), "a")
    with gossip.Gossip(lone("a"), "a") as node:
        with pytest.raises(polyverso.ArgumentError, match="NaN"):
            node.publish([np.array([np.nan])], 1)
        with pytest.raises(polyverso.StateError, match="publish first"):
            node.fetch_start()
    with pytest.raises(polyverso.HandleError):
        node.publish([np.zeros(1)], 1)


@pytest.fixture
def dpwa_path(monkeypatch):
    monkeypatch.syspath_prepend(str(COMPAT))
    for name in [name for name in sys.modules if name.split(".")[0] == "dpwa"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def sample(tmp_path):
    """The sample configuration, for two nodes, at ports that are free."""
    text = (pathlib.Path(__file__).parents[2] / "samples" / "gossip.yaml").read_text()
    for old, new in zip((45000, 45001, 45002, 45003), free_ports(4)):
        text = text.replace(str(old), str(new))
    file = tmp_path / "dpwa.yaml"
    file.write_text(text)
    return file


def test_dpwa_s_connection(dpwa_path, sample):
    from dpwa.dpwa import DpwaConfiguration, DpwaConnection
    from dpwa.interpolation import ClockWeightedInterpolation, ConstantInterpolation, LossInterpolation

    config = DpwaConfiguration(str(sample))
    assert [node["name"] for node in config.get_nodes()] == ["w1", "w2", "w3", "w4"]
    assert config.get_interpolation() == ("constant", {"value": 0.5})
    assert config.get_timeoutms() == 2500 and config.get_fetch_probability() == 1
    assert ConstantInterpolation(value=0.3)(1, 2, 3, 4) == 0.3
    assert ClockWeightedInterpolation()(1, 3, 0, 0) == 0.75
    assert LossInterpolation()(0, 0, 1, 3) == 0.25 and LossInterpolation()(0, 0, 0, 0) == 0.5

    one, two = DpwaConnection("w1", str(sample)), DpwaConnection("w2", str(sample))
    one.remove_peer("w4")
    assert one.update_wait(0.5) == (None, 0)
    two.update_send(b"the other's parameters", 0.25)
    one.update_send(b"parameters", 0.5)
    assert one.update_wait(0.5) == (b"the other's parameters", 0.5)
    assert one.clock == 1
    one.add_peer("w4", "localhost", 9)
    assert {peer["name"] for peer in one.peers} == {"w2", "w3", "w4"}
    for connection in (one, two):
        connection._connection.gossip.close()


def test_flattened_configuration(dpwa_path, tmp_path):
    from dpwa.dpwa import DpwaConfiguration

    file = tmp_path / "flat.yaml"
    file.write_text("- nodes:\n- {name: w1, host: localhost, port: 1}\n- interpolation: clock\n- clock: 0\n")
    assert DpwaConfiguration(str(file)).get_nodes() == [{"name": "w1", "host": "localhost", "port": 1}]
    assert DpwaConfiguration(str(file)).get_interpolation() == ("clock", 0)


def test_pytorch_modules(dpwa_path, sample):
    torch = pytest.importorskip("torch", reason="python3-torch is not installed")
    from dpwa.adapters.pytorch import DpwaPyTorchAdapter
    from polyverso.gossip.torch import TorchAdapter

    def network(value):
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2).to(torch.bfloat16))
        for parameter in net.parameters():
            torch.nn.init.constant_(parameter, value)
        net[0].weight.data = net[0].weight.data.t().contiguous().t()  # not contiguous
        return net

    nets = [network(1.0), network(3.0)]
    memory = [parameter.data_ptr() for parameter in nets[0].parameters()]
    adapters = [DpwaPyTorchAdapter(net, name, str(sample)) for net, name in zip(nets, ("w1", "w2"))]
    adapters[1].update_send(0.5)
    adapters[0].update_send(0.5)
    adapters[0].update_wait(0.4)
    assert all(bool((parameter == 2).all()) for parameter in nets[0].parameters())
    assert memory == [parameter.data_ptr() for parameter in nets[0].parameters()]
    for adapter in adapters:
        adapter.close()

    nets[1][1].running_mean.fill_(4.0)
    a, b = (TorchAdapter(net, name, lone(name), buffers=True) for net, name in zip(nets, "ab"))
    introduce(a.gossip, b.gossip)
    b.update_send(0.5)
    a.update_send(0.5)
    assert a.update_wait(0.5) == 0.5
    assert bool((nets[0][1].running_mean == 2).all())
    a.close()
    b.close()
