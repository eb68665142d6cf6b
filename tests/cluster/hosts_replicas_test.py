"""Servers with back-ups on several hosts, which are network namespaces: a host, or the line between two of them, is cut and healed. Every add counts
once, also those of processes that were cut off."""

import time

import pytest

HEARTBEAT = 2.0  # seconds of silence after which a process counts as lost

# Adds 1 until it is told to stop or a call fails, and says how many adds have ended. Another word: shows the table's least and largest value.
WORK = """
import threading
node = pv.init()
table = node.array(600, name="weights", dtype="float64")
stop = threading.Event()
threading.Thread(target=lambda: (wait_for_word(), stop.set()), daemon=True).start()
say("up")
made, ending = 0, "ok"
while not stop.is_set():
    try:
        table.add(np.ones(600))
    except pv.Error as error:
        ending = str(error)
        break
    made += 1
    if made % 20 == 0:
        say("step", made)
    time.sleep(0.01)
say("made", made, ending)
stop.wait()
while wait_for_word():
    seen = table.get()
    say("sum", seen.min(), seen.max())
attempt(node.shutdown)
"""


def begin(cluster, hosts, workers, servers, place):
    job = cluster(workers, servers, network=hosts, place=place, replicas=1, heartbeat_timeout_ms=int(1000 * HEARTBEAT))
    nodes = [job.python(rank, WORK) for rank in range(workers)]
    servers = [job.server(number) for number in range(servers)]
    for node in nodes:
        node.hear("up", 60)
    for node in nodes:
        node.hear("step 40", 60)
    return nodes, servers


def made_by(node):
    _, count, ending = node.hear("made ", 60).split(" ", 2)
    return int(count), ending


def sum_of(node):
    node.tell("sum")
    return [float(word) for word in node.hear("sum ", 60).split()[1:]]


def end(nodes):
    for node in nodes:
        node.tell("")
    for node in nodes:
        assert node.hear_attempt()[1] == "ok"
        node.ends()


@pytest.mark.parametrize("ways", [((1, 3), (3, 1)), ((1, 3),), ((3, 1),)], ids=["both", "from the worker", "to the worker"])
def test_a_server_that_alone_has_lost_a_worker_is_given_up(cluster, network, ways):
    """Its tables are at another one, so no call fails, and nothing is lost or counts twice."""
    hosts = network(5)
    nodes, servers = begin(cluster, hosts, 2, 3, place=lambda rank: rank)  # the servers are on hosts 2, 3 and 4
    for way in ways:
        hosts.block(*way)
    servers[1].process.wait(60)
    for node in nodes:
        node.forget()
        node.hear("step", 60)
        node.tell("stop")
    made = [made_by(node) for node in nodes]
    assert [ending for _, ending in made] == ["ok", "ok"], made
    total = sum(count for count, _ in made)
    assert sum_of(nodes[0]) == [total, total], (made, total)
    end(nodes)


def test_what_a_host_does_that_is_cut_off_and_comes_back_changes_nothing(cluster, network):
    hosts = network(4)
    # Hosts 0 and 1 have a worker and a server each, host 2 a server, and host 3 a worker and a server.
    nodes, servers = begin(cluster, hosts, 3, 4, place=lambda rank: [0, 1, 3, 0, 1, 2, 3][rank])
    hosts.cut(3)
    cut_off, ending = made_by(nodes[2])
    assert "MV_EPEERLOST" in ending, ending
    nodes[0].forget()
    nodes[0].hear("step", 60)  # the others go on
    for node in nodes[:2]:
        node.tell("stop")
    made = [made_by(node) for node in nodes[:2]]
    assert [ending for _, ending in made] == ["ok", "ok"]
    total = sum(count for count, _ in made) + cut_off
    before = sum_of(nodes[0])
    assert total <= before[0] and before[1] <= total + 1, (made, cut_off, before)
    hosts.heal(3)
    nodes[2].tell("stop")
    time.sleep(2 * HEARTBEAT)
    assert sum_of(nodes[1]) == before
    end(nodes[:2])
    nodes[2].kill()
    servers[3].kill()
