"""polyverso.gossip."""

import gc
import os
import pathlib
import socket
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

import polyverso
from polyverso import gossip
from ports import free_ports


def lone(name, **settings):
    return {"nodes": [{"name": name, "host": "127.0.0.1", "port": 0}], "timeout_ms": 20000, **settings}


def port_of(node):
    return int(node.state["address"].rsplit(":", 1)[1])


def introduce(*nodes):
    for node in nodes:
        for other in nodes:
            if node is not other:
                node.add_peer(other.name, "127.0.0.1", port_of(other))


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
    assert b.update_wait(1) == 0  # it has no peers
    state = a.gossip.state
    assert state["clock"] == 1 and state["averaged"] == 1 and state["last"] == "b"
    assert [peer["fetched"] for peer in a.gossip.peers] == [1]
    assert "score 1000" in str(a.gossip)
    a.close()
    b.close()


def test_sending_twice_before_waiting():
    own, other = np.zeros(2), np.full(2, 2.0)
    with gossip.ArrayAdapter([own], "a", lone("a")) as a, gossip.ArrayAdapter([other], "b", lone("b")) as b:
        introduce(a.gossip, b.gossip)
        b.update_send(1)
        for _ in range(3):
            a.update_send(1)
        assert a.gossip.state["clock"] == 3
        assert a.update_wait(1) == 0.5 and (own == 1).all()
        assert a.update_wait(1) == 0
    with pytest.raises(polyverso.HandleError):
        a.update_send(1)


def both(*nodes):
    """Every node sends before any node waits: an exchange needs both sides."""
    for node in nodes:
        node.update_send(1)
    return [node.update_wait(1) for node in nodes]


def test_both_sides_of_an_exchange_average():
    models = [np.arange(1000.0), np.full(1000, 8.0)]
    total = models[0] + models[1]
    nodes = [
        gossip.ArrayAdapter([model], name, lone(name, exchange="symmetric", compression="int8", transport="tcp")) for model, name in zip(models, "ab")
    ]
    introduce(*(node.gossip for node in nodes))
    assert both(*nodes) == [0.5, 0.5]
    assert np.allclose(models[0] + models[1], total, atol=1e-12)
    assert np.abs(models[0] - models[1]).max() < 8
    state = nodes[0].gossip.state
    assert state["exchanges"] == {"valid": 1, "half": 0, "unsettled": 0}
    assert state["fetched_bytes"] == 1000 + 4 * 4
    assert nodes[0].gossip.disagreement == pytest.approx(state["peers"][0]["disagreement"])
    assert 'polyverso_gossip_exchanges_total{node="a",end="valid"} 1' in nodes[0].gossip.metrics
    for node in nodes:
        node.close()


def test_noloco_draws_slow_models_together():
    models = [np.zeros(3), np.full(3, 4.0)]
    nodes = [gossip.ArrayAdapter([model], name, lone(name, interpolation="noloco")) for model, name in zip(models, "ab")]
    introduce(*(node.gossip for node in nodes))
    for _ in range(60):
        both(*nodes)
    assert np.allclose(models[0], 2, atol=1e-6) and np.allclose(models[1], 2, atol=1e-6)
    nodes[1].close()
    nodes[0].update_send(1)
    models[0] += 1  # while there is no peer
    assert nodes[0].update_wait(1) == 0
    assert np.allclose(models[0], 3, atol=1e-6)
    nodes[0].close()


def test_figures_over_http():
    config = lone("a")
    config["nodes"][0]["metrics"] = 0
    with gossip.Gossip(config, "a") as node:
        node.publish([np.ones(2)], 0.5)
        with urllib.request.urlopen(f"http://{node.state['metrics']}/metrics", timeout=20) as answer:
            text = answer.read().decode()
    assert 'polyverso_gossip_updates_total{node="a"} 1' in text
    assert 'polyverso_gossip_loss{node="a"} 0.5' in text


def test_status_of_all_nodes_of_a_file(tmp_path):
    config = tmp_path / "nodes.yaml"
    first = free_ports(2)
    config.write_text("nodes:\n" + "".join(f"- {{name: {name}, host: 127.0.0.1, port: {port}}}\n" for name, port in zip("ab", (first, first + 1))))
    with gossip.Gossip(config, "a"):
        here, gone = gossip.status(config)
    assert (here["name"], here["updates"]) == ("a", 0)
    assert gone["name"] == "b" and gone["error"]


def test_arrays_that_are_not_contiguous():
    own, other = np.zeros((4, 6))[:, ::2], np.full((4, 6), 2.0)[:, ::2]
    a, b = gossip.ArrayAdapter(own, "a", lone("a")), gossip.ArrayAdapter([other], "b", lone("b"))  # a single array works too
    introduce(a.gossip, b.gossip)
    b.update_send(1)
    a.update_send(1)
    assert a.update_wait(1) == 0.5
    assert np.array_equal(own, np.ones((4, 3)))
    a.close()
    b.close()


@pytest.mark.parametrize("own, other, factor", [
    ((2, 3), (3, 2), 0), ((2, 3), (2, 3), 0.5), ((2, 3), (6,), 0.5), ((1,), (), 0.5), ((2, 3), (1, 2, 3), 0),
])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_other_dimensions_are_refused(own, other, factor, transport):
    a, b = gossip.ArrayAdapter(np.zeros(own), "a", lone("a", transport=transport)), gossip.ArrayAdapter(np.ones(other), "b", lone("b", transport=transport))
    introduce(a.gossip, b.gossip)
    b.update_send(1)
    for _ in range(2):  # by messages, and by mapped memory
        a.update_send(1)
        assert (a.update_wait(1) > 0) == (factor > 0)
    assert ("dimensions of array 0" in a.gossip.peers[0]["problem"]) == (factor == 0)
    a.close()
    b.close()


def test_a_node_that_is_dropped_gives_its_port_back():
    for adapter in (False, True):
        node = gossip.ArrayAdapter(np.zeros(2), "a", lone("a")) if adapter else gossip.Gossip(lone("a"), "a")
        port = port_of(node.gossip if adapter else node)
        del node
        gc.collect()
        socket.create_server(("127.0.0.1", port)).close()


def test_a_clock_can_be_set():
    with gossip.Gossip(lone("a"), "a") as node:
        node.clock = 41.5
        node.publish([np.zeros(1)], 1)
        assert node.clock == 42.5
        with pytest.raises(polyverso.ArgumentError, match="clock"):
            node.clock = -1


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
        # After any error, the next snapshot begins with its first array.
        for arrays, loss in (([np.zeros(1), [1.0]], 1), ([np.zeros(1)], float("nan")), ([np.zeros(1), np.array([np.inf])], 1)):
            with pytest.raises(polyverso.Error):
                node.publish(arrays, loss)
            with pytest.raises(polyverso.StateError, match="nothing was added"):
                node.publish([], 1)
    with pytest.raises(polyverso.HandleError):
        node.publish([np.zeros(1)], 1)


def exchanging(*names):
    nodes = [gossip.Gossip(lone(name, exchange="symmetric"), name) for name in names]
    introduce(*nodes)
    return nodes


def test_other_arrays_may_be_published_during_an_exchange():
    a, b = exchanging("a", "b")
    u, v = np.full(1000, 10.0, np.float32), np.full(3000, 20.0, np.float32)
    a.publish([u, v], 1)
    b.publish([np.full(1000, 30.0, np.float32), np.full(3000, 40.0, np.float32)], 1)
    for node in (a, b):
        assert node.fetch_start()
    assert b.fetch_wait(1) is not None
    a.publish([v[:10].copy()], 1)  # the next model has other arrays
    assert a.fetch_wait(1) is not None
    a.average(u)
    a.average(v)
    assert (u == 20).all() and (v == 30).all()
    for node in (a, b):
        node.close()


def test_a_model_that_grows_during_a_lonely_step_of_noloco():
    node = gossip.Gossip(lone("a", interpolation="noloco", timeout_ms=200), "a")
    own, large = np.full(1000, 1.0, np.float32), np.full(3_000_000, 2.0, np.float32)
    node.publish([own], 1)
    assert node.fetch_start()
    node.publish([own, large], 1)
    assert node.fetch_wait(1) is not None
    node.average(own)
    with pytest.raises(polyverso.StateError, match="all 1 fetched arrays"):
        node.average(large)
    assert (large == 2).all()
    node.close()


def test_what_was_not_published_is_no_slow_model():
    node = gossip.Gossip(lone("a", interpolation="noloco", timeout_ms=200), "a")
    one, two = np.full(10, 1.0), np.full(10, np.nan)
    with pytest.raises(polyverso.ArgumentError, match="array 1 holds NaN"):
        node.publish([one, two], 1)
    one[:], two[:] = 7, 7
    node.publish([one, two], 1)
    assert node.fetch_start()
    node.fetch_wait(1)
    node.average(one)
    assert np.allclose(one, 7)
    node.close()


def test_an_update_goes_on_after_a_fetch_that_failed():
    a, b = exchanging("a", "b")
    own = np.zeros(100, np.float32)
    for node in (a, b):
        node.publish([own], 1)
        assert node.fetch_start()
    assert b.fetch_wait(1) is not None
    for _ in range(3):
        a.publish([own], 1)
    try:
        a.fetch_wait(1)
    except polyverso.StateError as error:
        assert "published twice" in str(error)
    assert not a.fetching
    for node in (a, b):
        node.close()


def test_a_snapshot_of_too_many_arrays_is_refused_where_it_is_made():
    few = [np.zeros(1, np.float32)] * 50_000
    with gossip.ArrayAdapter(few, "a", lone("a")) as a, gossip.ArrayAdapter(few, "b", lone("b", transport="tcp")) as b:
        introduce(a.gossip, b.gossip)
        a.update_send(1)
        b.update_send(1)
        assert b.update_wait(1) == 0.5
    many = gossip.Gossip(lone("c"), "c")
    with pytest.raises(polyverso.ArgumentError, match="at most 50000 arrays"):
        many.publish(few + [np.zeros(1, np.float32)], 1)
    many.close()


ALONE = """
import numpy as np
from polyverso import gossip
alone = {"nodes": [{"name": "a", "host": "127.0.0.1", "port": 0}, {"name": "gone", "host": "127.0.0.1", "port": 1}], "timeout_ms": 300}
with gossip.ArrayAdapter([np.zeros(2)], "a", alone) as node:
    node.update_send(1)
    node.update_wait(1)
"""


@pytest.mark.parametrize("level, warns", [("warn", True), ("error", False), ("off", False)])
def test_the_log_level_counts_without_a_cluster(level, warns):
    done = subprocess.run([sys.executable, "-c", ALONE], env=dict(os.environ, POLYVERSO_LOG_LEVEL=level), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and ("continues alone" in done.stderr) == warns, done.stderr
