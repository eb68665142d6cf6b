"""keeper=etcd://A,B,C/NAME: an etcd of three members, which are killed, and stopped and continue."""

import signal
import time

import pytest
from etcd import EtcdMembers, is_installed
from named import JOIN, WORK, Named, end, sums, whole

pytestmark = pytest.mark.skipif(not is_installed(), reason="etcd is missing: apt install etcd-server")
LEASE = 2.0  # seconds, of a heartbeat_timeout_ms of 1000


@pytest.fixture
def etcd():
    members = EtcdMembers().start()
    yield members
    members.end()


@pytest.fixture
def named(etcd):
    """named(workers, order, **settings): a Named whose etcd's endpoints are in this order of the members."""
    made = []

    def begin(workers, order=None, name="job", **settings):
        settings = {"heartbeat_timeout_ms": 1000, "init_timeout_ms": 60000, "log_level": "info", **settings}
        made.append(Named(workers, etcd.keeper(name, order), **settings))
        return made[-1]

    yield begin
    for each in made:
        each.end()


def step(nodes):
    for node in nodes:
        node.tell("step")
    for node in nodes:
        assert node.hear_attempt()[1] == "ok"


def with_rank(rank, nodes):
    """The process of this rank, after sums()."""
    return next(node for node in nodes if any(line.startswith("sum ") and line.split()[6] == str(rank) for line in node.lines))


def is_refused(job):
    """A further process has found the cluster, which needs none."""
    took, ending = job.python(0, JOIN).hear_attempt(40)
    assert "already complete" in ending, ending
    return took


def first(etcd, member):
    """The members, with this one first: clients begin with it."""
    return [member, *(each for each in etcd.members if each is not member)]


@pytest.mark.parametrize("whom", ["leader", "follower"])
def test_a_killed_member_is_passed_over(named, etcd, whom):
    leader = etcd.leader()
    killed = leader if whom == "leader" else next(member for member in etcd.members if member is not leader)
    job = named(2, first(etcd, killed))
    nodes = job.begin()
    assert sums(nodes) == whole(2)
    killed.kill()
    step(nodes)
    time.sleep(1.5 * LEASE)  # the lease goes on
    assert is_refused(job) < 5
    assert not any("another process" in line or "expired" in line for line in with_rank(0, nodes).lines)
    fresh = named(2, first(etcd, killed), name="fresh").begin()  # the killed one is the first that they ask
    assert sums(fresh) == whole(2)
    end(fresh)
    etcd.begin(killed)
    killed.wait_until_ready()
    is_refused(named(2, [killed]))  # it knows the cluster again
    step(nodes)
    end(nodes)


@pytest.mark.parametrize("whom", ["leader", "follower"])
def test_a_stopped_member_is_passed_over_and_counts_again_when_it_continues(named, etcd, whom):
    leader = etcd.leader()
    stopped = leader if whom == "leader" else next(member for member in etcd.members if member is not leader)
    job = named(2, first(etcd, stopped))
    nodes = job.begin()
    assert sums(nodes) == whole(2)
    stopped.signal(signal.SIGSTOP)  # it accepts connections, and does not answer
    time.sleep(1.5 * LEASE)
    assert is_refused(job) < 8
    fresh = named(2, first(etcd, stopped), name="fresh").begin()
    assert sums(fresh) == whole(2)
    end(fresh)
    stopped.signal(signal.SIGCONT)
    is_refused(named(2, [stopped]))
    step(nodes)
    end(nodes)


def test_one_killed_and_one_stopped_are_too_many_until_the_stopped_one_continues(named, etcd):
    killed, stopped, left = etcd.members
    job = named(2)
    nodes = job.begin()
    assert sums(nodes) == whole(2)
    killed.kill()
    step(nodes)
    stopped.signal(signal.SIGSTOP)
    master = with_rank(0, nodes)
    master.hear("does not answer")  # the member that is left has no majority
    step(nodes)  # the cluster goes on
    failed = named(2, name="other", init_timeout_ms=2000).python(0, JOIN)
    took, ending = failed.hear_attempt(20)
    assert "does not answer" in ending and took < 15, (took, ending)
    waiting = named(2, name="late").begin()
    for node in waiting:
        node.hear("trying again")
    stopped.signal(signal.SIGCONT)
    assert sums(waiting, 40) == whole(2)
    master.hear("again")
    is_refused(named(2, [left]))
    end(waiting)
    step(nodes)
    end(nodes)


@pytest.mark.parametrize("harm", ["kill", "stop"])
def test_rank_0_and_a_member_are_lost_at_once(named, etcd, harm):
    """Two servers with back-ups: etcd decides that the second is the master now."""
    job = named(2, first(etcd, etcd.leader()), replicas=1)
    nodes = job.begin()
    assert sums(nodes) == whole(2)
    master, successor = with_rank(0, nodes), with_rank(1, nodes)
    leader = etcd.leader()
    leader.kill() if harm == "kill" else leader.signal(signal.SIGSTOP)
    master.kill()
    master.process.wait()
    successor.tell("step")
    assert "MV_EPEERLOST" in successor.hear_attempt(40)[1]
    if not any("has this process as the master" in line for line in successor.lines):
        successor.hear("has this process as the master", 40)
    step([successor])
    if harm == "stop":
        leader.signal(signal.SIGCONT)
    late = job.python(0, "node = pv.init()\ntable = node.open('sums')\nsay('found', *table.get().astype(int))\nattempt(node.shutdown)\n")
    assert late.hear("found ", 40).split()[1:3] == ["4", "5"]
    end([successor])
    late.ends()
