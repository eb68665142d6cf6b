"""Gossip between several hosts, which are network namespaces, while the line of one of them is cut."""

import pytest

from gossip_swarm import Swarm

HOSTS = 4  # with two nodes each


@pytest.fixture
def swarm(network):
    swarm = Swarm(network(HOSTS))
    yield swarm
    swarm.end()


def averages_on(swarm, names, more=10):
    for name in names:
        averaged = swarm.stands_now(name)[2]
        swarm.until(name, lambda report, enough=averaged + more: report[2] >= enough)


def fetched_from(report, peers):
    return sum(report[4][peer][0] for peer in peers)


@pytest.mark.parametrize("how", ["cut", "one way"])
def test_gossip_goes_on_without_a_host_and_with_it_when_its_line_heals(swarm, how):
    names = [f"w{i}" for i in range(2 * HOSTS)]
    for value, name in enumerate(names):
        swarm.start(name, value)
    for name in names:
        swarm.until(name, lambda report: len(report[4]) == len(names) - 1)
    gone = [name for name in names if swarm.places[name] == 3]
    stay = [name for name in names if name not in gone]
    averages_on(swarm, names)
    ways = [(3, other) for other in range(3)]
    if how == "cut":
        swarm.network.cut(3)
    else:
        for way in ways:
            swarm.network.block(*way)
    averages_on(swarm, stay, 20)
    averages_on(swarm, gone, 3)  # with each other
    if how == "cut":
        swarm.network.heal(3)
    else:
        for way in ways:
            swarm.network.unblock(*way)
    before = fetched_from(swarm.stands_now("w0"), gone)
    swarm.until("w0", lambda report: fetched_from(report, gone) > before + 5)
    averages_on(swarm, names)
    values = [swarm.stands_now(name)[1] for name in names]
    assert max(values) - min(values) < 1, values
