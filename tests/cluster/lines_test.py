"""Bytes that cross the lines between hosts, which are network namespaces, as the router counts them."""

import pytest

HOSTS, EACH = 2, 4
COUNT = 2 << 20
VALUE = 4 * COUNT  # bytes of a value
# Packets, messages and encryption have headers; heartbeats and acknowledgements cross too.
MORE = 1.05

KIND = 'KIND = "%s"\n'  # of the table
WORK = """
import hashlib
from polyverso.group import Group
node = pv.init()
count, value = %d, np.ones(%d, np.float32)
kind = {"async": {}, "merged": {"merge": True}, "sync": {"staleness": 0}}[KIND]
table = node.array(count, name="weights", **kind) if node.num_servers == 1 else None
group = Group(node)
say("up")
while word := wait_for_word():
    if word == "allreduce":
        assert (group.allreduce(value) >= group.size).all()
    elif word == "add":
        table.add(value)
    elif word == "get":
        table.get()
    elif word == "bits":
        seen = hashlib.sha256()
        for length in (1, 1000, 100_003, 2_000_003):
            of_ranks = [np.random.default_rng(rank).standard_normal(length).astype(np.float32) for rank in range(group.size)]
            mine = group.allreduce(of_ranks[group.rank].copy())
            assert np.allclose(mine, sum(of_ranks), atol=1e-4)
            seen.update(mine.tobytes())
        say("bits", seen.hexdigest())
    elif word == "add by host":
        with Group.of_host(node) as host:
            change = host.reduce(value.copy())
            if host.rank == 0:
                table.add(change)
            elif KIND != "async":
                table.add(np.empty(0, np.float32), rows=[])
            host.barrier()
        assert KIND != "async" or (table.peek(rows=[0, count - 1]) >= 2 * group.size).all()
    elif word == "get by host":
        with Group.of_host(node) as host:
            got = table.get() if host.rank == 0 else value.copy()
            if host.rank != 0 and KIND == "sync":
                table.get(rows=[])
            assert (host.broadcast(got) == 2 * group.size).all()
    say("done")
node.shutdown()
""" % (COUNT, COUNT)


def crossing(hosts, nodes, word):
    """What each host sends and receives while the nodes carry out a word, in values."""
    before = [hosts.crossed(number) for number in range(len(hosts))]
    for node in nodes:
        node.tell(word)
    for node in nodes:
        node.hear("done", 60)
    after = [hosts.crossed(number) for number in range(len(hosts))]
    return [[(now - then) / VALUE for now, then in zip(*pair)] for pair in zip(after, before)]


def end(nodes):
    for node in nodes:
        node.tell("")
    for node in nodes:
        node.ends()


@pytest.fixture
def four_and_one(cluster, network, request):
    """(the hosts, four workers on the first of them); the table's only server is on the second. The parameter: the kind of table."""
    hosts = network(HOSTS)
    job = cluster(EACH, 1, network=hosts, place=lambda rank: rank // EACH)
    nodes = [job.python(rank, KIND % request.param + WORK) for rank in range(EACH)]
    job.server(0)
    for node in nodes:
        node.hear("up", 60)
    yield hosts, nodes
    end(nodes)


def test_an_allreduce_crosses_the_line_once_each_way(cluster, network):
    hosts = network(HOSTS)
    job = cluster(HOSTS * EACH, network=hosts)
    nodes = [job.python(rank, KIND % "async" + WORK) for rank in range(HOSTS * EACH)]
    for node in nodes:
        node.hear("up", 60)
    for sent, received in crossing(hosts, nodes, "allreduce"):
        assert 1 <= sent < MORE and 1 <= received < MORE, (sent, received)
    for node in nodes:
        node.tell("bits")
    assert len({node.hear("bits", 60) for node in nodes}) == 1
    end(nodes)


@pytest.mark.parametrize("four_and_one", ["async"], indirect=True)
def test_each_workers_add_and_get_cross_the_line_once(four_and_one):
    hosts, nodes = four_and_one
    sent, received = crossing(hosts, nodes, "add")[0]
    assert EACH <= sent < EACH * MORE and received < 0.1, (sent, received)
    sent, received = crossing(hosts, nodes, "get")[0]
    assert sent < 0.1 and EACH <= received < EACH * MORE, (sent, received)


@pytest.mark.parametrize("four_and_one", ["async", "merged", "sync"], indirect=True)
def test_adds_and_gets_of_a_hosts_group_cross_the_line_once_for_all(four_and_one):
    hosts, nodes = four_and_one
    crossing(hosts, nodes, "add")
    sent, received = crossing(hosts, nodes, "add by host")[0]
    assert 1 <= sent < MORE and received < 0.1, (sent, received)
    sent, received = crossing(hosts, nodes, "get by host")[0]
    assert sent < 0.1 and 1 <= received < MORE, (sent, received)
