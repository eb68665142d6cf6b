"""Clusters on several hosts, which are network namespaces: lines that are cut, slow, or pass one direction only."""

import re
import time

import pytest

HOSTS, EACH = 4, 2  # ranks 0 and 1 are on the first host
RANKS = HOSTS * EACH
HEARTBEAT = 2.0   # seconds of silence after which a process counts as lost
LATER = 4.0       # seconds that a busy machine may need beyond that

# Reads "feature steps" from standard input and makes these steps. Each step checks the values.
WORK = """
from polyverso import kvstore
from polyverso.group import Group
node = pv.init()
count, workers = COUNT, node.num_workers
ones, out = np.ones(count, np.float32), np.zeros(count, np.float32)
table, added = node.array(count, name="weights"), 0
store = kvstore.create("dist_sync")
store.init("key", out)
group = Group(node)

def tables():
    global added
    table.add(ones)
    added += 1
    assert table.get().min() >= added

def stores():
    store.push("key", ones)
    store.pull("key", out=out)
    assert (out == workers).all(), out

def allreduce():
    assert (group.allreduce(ones.copy()) == group.size).all()

def every():
    tables()
    stores()
    allreduce()

def steps(feature, times):
    for step in range(times):
        globals()[feature]()
        if step % 5 == 0:
            say("step", step)
        time.sleep(0.02)

say("up")
while words := wait_for_word().split():
    if words[0] == "shrink":
        group = group.shrink()
        say("ranks", *group.members)
    elif words[0] == "sum":
        attempt(node.barrier)
        say("sum", table.get().min(), table.get().max())
    elif words[0] == "peers":
        say("peers", *(f"{peer['rank']}={peer['transport']}" for peer in sorted(node.doctor()["peers"], key=lambda peer: peer["rank"])))
    else:
        attempt(steps, words[0], int(words[1]))
attempt(node.shutdown)
"""


def work(count=1000):
    return WORK.replace("COUNT", str(count))


@pytest.fixture
def eight(cluster, network):
    """eight(rate, families, count, **settings): (the hosts, the processes of a cluster of eight workers on four of them)."""

    def begin(rate=None, families=(4,), count=1000, **settings):
        hosts = network(HOSTS, rate, families)
        job = cluster(RANKS, network=hosts, **settings)
        nodes = [job.python(rank, work(count)) for rank in range(RANKS)]
        for node in nodes:
            node.hear("up", 60)
        return hosts, nodes

    return begin


def tell(nodes, words):
    for node in nodes:
        node.tell(words)


def all_well(nodes, words, seconds=60):
    tell(nodes, words)
    for node in nodes:
        assert node.hear_attempt(seconds)[1] == "ok"


def end(nodes):
    tell(nodes, "")
    for node in nodes:
        assert node.hear_attempt()[1] == "ok"
        node.ends()


@pytest.mark.parametrize("families", [(4,), (6,)], ids=["ipv4", "ipv6"])
def test_four_hosts_with_two_processes_each(eight, families):
    _, nodes = eight(families=families)
    all_well(nodes, "every 20")
    tell(nodes, "sum")
    for node in nodes:
        assert node.hear("sum") == f"sum {20.0 * RANKS} {20.0 * RANKS}"
    tell(nodes, "peers")
    for rank, node in enumerate(nodes):
        beside = rank ^ 1  # the other rank of the host: shared memory reaches it, and no other
        assert node.hear("peers").split()[1:] == [f"{r}={'shm' if r == beside else 'tcp'}" for r in range(RANKS) if r != rank]
    end(nodes)


FEATURES = ["tables", "stores", "allreduce"]


def hear_of_loss(nodes, lost, cut_at):
    """Each call ends in time, with an error that names one of the lost ranks."""
    for node in nodes:
        _, ending = node.hear_attempt(HEARTBEAT + LATER)
        assert ending.startswith("PeerError") and re.search(rf"rank [{lost}]\b|(worker|server) [{lost}]\b", ending), (node.label, ending)
    assert time.monotonic() - cut_at < HEARTBEAT + LATER


@pytest.mark.parametrize("how", ["cut", "unplug"])
def test_a_line_that_is_cut_and_healed_in_time_costs_only_time(eight, how):
    hosts, nodes = eight(heartbeat_timeout_ms=10000)
    tell(nodes, "every 100")
    nodes[0].hear("step 5")
    getattr(hosts, how)(3)
    time.sleep(2)
    nodes[0].forget()
    {"cut": hosts.heal, "unplug": hosts.plug}[how](3)
    for node in nodes:
        assert node.hear_attempt(60)[1] == "ok"
    tell(nodes, "sum")
    for node in nodes:
        assert node.hear("sum") == f"sum {100.0 * RANKS} {100.0 * RANKS}"
    end(nodes)


@pytest.mark.parametrize("feature", FEATURES)
def test_a_line_that_stays_cut_is_named_in_time_on_both_of_its_ends(eight, feature):
    hosts, nodes = eight(heartbeat_timeout_ms=int(1000 * HEARTBEAT))
    tell(nodes, f"{feature} 100000")
    nodes[0].hear("step 5")
    hosts.cut(3)
    cut_at = time.monotonic()
    hear_of_loss(nodes[:6], "67", cut_at)
    hear_of_loss(nodes[6:], "0-5", cut_at)
    if feature == "allreduce":  # the others go on
        tell(nodes[:6], "shrink")
        for node in nodes[:6]:
            assert node.hear("ranks") == "ranks 0 1 2 3 4 5"
        all_well(nodes[:6], "allreduce 5")


def test_tables_with_back_ups_go_on_without_a_host(cluster, network):
    hosts = network(HOSTS)
    job = cluster(4, 4, network=hosts, replicas=1, heartbeat_timeout_ms=int(1000 * HEARTBEAT))
    nodes = [job.python(rank, work()) for rank in range(4)]  # on hosts 0 and 1; the servers are on hosts 2 and 3
    for server in range(4):
        job.server(server)
    for node in nodes:
        node.hear("up", 60)
    tell(nodes, "tables 200")
    nodes[0].hear("step 5")
    hosts.cut(3)
    for node in nodes:
        assert node.hear_attempt(60)[1] == "ok"
    tell(nodes, "sum")
    for node in nodes:
        assert node.hear("sum", 30) == f"sum {200.0 * 4} {200.0 * 4}"
    end(nodes)


def test_on_a_slow_line_everything_works_and_takes_longer(eight):
    hosts, nodes = eight(count=1 << 16, heartbeat_timeout_ms=30000, timeout_ms=120000)
    hosts.set_rate(3, 1e6)
    all_well(nodes, "every 2", 120)
    end(nodes)


def test_a_message_that_takes_longer_than_the_longest_silence_loses_nobody(cluster, network):
    hosts = network(2, 1e6)  # 4 MiB take four seconds
    job = cluster(2, network=hosts, heartbeat_timeout_ms=1000, timeout_ms=120000)
    nodes = [job.python(rank, work(1 << 20)) for rank in range(2)]
    for node in nodes:
        node.hear("up", 60)
    for feature in FEATURES:
        all_well(nodes, f"{feature} 1", 120)
    end(nodes)


ONE = """
node = pv.init()
table = node.array(1000, name="weights")
say("up")
while words := wait_for_word():
    if words == "add":
        attempt(table.add, np.ones(1000))
    elif words == "get":
        say("got", table.get().min())
attempt(node.shutdown)
"""


def test_a_process_whose_address_changes_is_lost_and_another_takes_its_place(cluster, network):
    hosts = network(3)
    job = cluster(2, 1, network=hosts, heartbeat_timeout_ms=int(1000 * HEARTBEAT))
    stays, moves = job.python(0, ONE), job.python(1, ONE)
    job.server(0)
    for node in (stays, moves):
        node.hear("up", 60)
        node.tell("add")
        assert node.hear_attempt()[1] == "ok"
    hosts.change_address(1, 7)
    moves.tell("add")
    took, ending = moves.hear_attempt(HEARTBEAT + LATER)
    assert ending.startswith("PeerError") and "server 0" in ending, ending
    comes = job.python(1, ONE)  # at the new address
    comes.hear("up", 60)
    comes.tell("add")
    assert comes.hear_attempt()[1] == "ok"
    stays.tell("get")
    assert stays.hear("got") == "got 3.0"


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("source, target", [(3, 0), (0, 3)])
def test_a_line_that_passes_one_direction_only_is_named_on_both_of_its_ends(eight, feature, source, target):
    hosts, nodes = eight(heartbeat_timeout_ms=int(1000 * HEARTBEAT))
    tell(nodes, f"{feature} 100000")
    nodes[0].hear("step 5")
    for other in range(3):
        hosts.block(*((3, other) if source == 3 else (other, 3)))
    cut_at = time.monotonic()
    hear_of_loss(nodes[:6], "67", cut_at)
    hear_of_loss(nodes[6:], "0-5", cut_at)
