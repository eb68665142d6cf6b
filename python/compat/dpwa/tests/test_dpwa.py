"""The stand-in for dpwa, as scripts written for dpwa use it."""

import os
import pathlib
import sys

import pytest

import polyverso

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.append(str(ROOT / "tests"))

from ports import free_ports  # noqa: E402

COMPAT = pathlib.Path(polyverso.__file__).parent.parent / "compat"  # build/activate appends it only if there is no dpwa

for name in [key for key in os.environ if key.startswith("POLYVERSO_")]:
    del os.environ[name]


@pytest.fixture
def dpwa_path(monkeypatch):
    monkeypatch.syspath_prepend(str(COMPAT))
    for name in [name for name in sys.modules if name.split(".")[0] == "dpwa"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def sample(tmp_path):
    """The sample configuration, with free ports."""
    text = (ROOT / "samples" / "gossip.yaml").read_text()
    first = free_ports(4)
    for place in range(4):
        text = text.replace(str(45000 + place), str(first + place))
    file = tmp_path / "dpwa.yaml"
    file.write_text(text)
    return file


def test_dpwa_s_connection(dpwa_path, sample):
    from dpwa.dpwa import DpwaConfiguration, DpwaConnection
    from dpwa.interpolation import ClockWeightedInterpolation, ConstantInterpolation, LossInterpolation

    config = DpwaConfiguration(str(sample))
    assert [node["name"] for node in config.get_nodes()] == ["w1", "w2", "w3", "w4"]
    assert config.get_interpolation() == ("constant", {"value": 0.5})
    assert config.get_timeoutms() == 2500 and config.get_fetch_probability() == 1 and config.get_divergence_threshold() == 0
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
    assert one.me.name == "w1" and [(peer.name, peer.host) for peer in one.peers] == [(name, "localhost") for name in ("w2", "w3", "w4")]
    assert (one.fetch_probability, one.divergence_threshold, one.interpolation(0, 0, 0, 0)) == (1, 0, 0.5)
    one.add_peer("w4", "localhost", 9)
    one.add_peer("w4", "localhost", 19)
    assert [peer["address"] for peer in one._connection.gossip.peers if peer["name"] == "w4"] == ["localhost:19"]
    with pytest.raises(TypeError, match="None"):
        one.update_send(None, 1)
    one.clock = 9
    assert one.clock == 9
    one.interpolation = lambda clock, peer_clock, loss, peer_loss: (clock, peer_clock, loss, peer_loss) == (10, 1, 0.5, 0.25) and 0.125
    one.update_send(b"parameters", 0.5)
    assert one.update_wait(0.5) == (b"the other's parameters", 0.125)
    assert one.clock == 0.125 * 1 + 0.875 * 10
    for connection in (one, two):
        connection.close()
        connection.close()


def test_factors_of_the_largest_losses(dpwa_path):
    from dpwa.interpolation import LossInterpolation

    assert LossInterpolation()(0, 0, 1e308, 1e308) == 0.5


def test_flattened_configuration(dpwa_path, tmp_path):
    from dpwa.dpwa import DpwaConfiguration

    file = tmp_path / "flat.yaml"
    file.write_text("- nodes:\n- {name: w1, host: localhost, port: 1}\n- interpolation: clock\n- clock: 0\n")
    assert DpwaConfiguration(str(file)).get_nodes() == [{"name": "w1", "host": "localhost", "port": 1}]
    assert DpwaConfiguration(str(file)).get_interpolation() == ("clock", 0)
    assert DpwaConfiguration(str(file)).get_timeoutms() == 2500  # the default: the file does not set it


def test_names_are_texts(dpwa_path, tmp_path):
    """Also those that YAML takes for numbers, truth values and dates."""
    from dpwa.dpwa import DpwaConnection

    file = tmp_path / "names.yaml"
    file.write_text("- nodes:\n- {name: 007, host: localhost, port: 0}\n- {name: on, host: localhost, port: 1}\n")
    connection = DpwaConnection("007", str(file))
    assert connection.me.name == "007" and [peer.name for peer in connection.peers] == ["on"]
    connection.close()
