"""keeper=file://: clusters whose processes meet by a name in a folder."""

import os
import signal
import sys
import time

import pytest
from named import JOIN, WORK, Named, end, sums, whole
from nodes import PRELUDE


@pytest.fixture
def named(tmp_path):
    """named(workers, name, **settings): a Named in one folder."""
    made = []

    def begin(workers, name="job", servers=0, **settings):
        made.append(Named(workers, f"file://{tmp_path}/{name}", servers=servers, **settings))
        return made[-1]

    yield begin
    for each in made:
        each.end()


def test_processes_with_a_name_only_form_one_cluster(named, tmp_path):
    nodes = named(4).begin()
    assert sums(nodes) == whole(4)
    assert [file.name for file in tmp_path.iterdir()] == ["job.polyverso"]
    assert "of the tests" not in (tmp_path / "job.polyverso").read_text()  # the secret
    end(nodes)
    assert not list(tmp_path.iterdir())


def test_two_names_are_two_clusters(named):
    nodes = {name: named(2, name).begin() for name in ("one", "two")}
    for each in nodes.values():
        assert sums(each) == whole(2)
        end(each)


def test_ranks_are_those_that_were_asked_for(named):
    job = named(3)
    nodes = [job.python(rank, WORK, rank=rank) for rank in (2, 1, 0)]
    assert [int(node.hear("sum ").split()[6]) for node in nodes] == [2, 1, 0]
    end(nodes)


def test_a_second_rank_0_is_refused_and_the_first_cluster_goes_on(named):
    job = named(2)
    nodes = [job.python(rank, WORK, rank=rank) for rank in range(2)]
    assert sums(nodes) == whole(2)
    took, ending = job.python(0, JOIN, rank=0).hear_attempt()
    assert "has a rank 0 already: pid" in ending and "another name" in ending, ending
    assert took < 5
    late = job.python(0, JOIN)
    assert "already complete" in late.hear_attempt()[1]
    for node in nodes:
        node.tell("step")
    assert [node.hear_attempt()[1] for node in nodes] == ["ok", "ok"]
    end(nodes)


def test_a_name_is_free_at_once_when_all_were_killed(named, tmp_path):
    job = named(2)
    nodes = job.begin()
    assert sums(nodes) == whole(2)
    for node in nodes:
        node.kill()
        node.process.wait()
    assert (tmp_path / "job.polyverso").exists()
    begun = time.monotonic()
    again = job.begin()
    assert sums(again) == whole(2)
    assert time.monotonic() - begun < 10
    end(again)


def first_server(job, folder):
    """A server that has rank 0, which a worker that came first would have."""
    server = job.server(0, rank=0)
    wait_for(folder / "job.polyverso")
    return server


def wait_for(file):
    deadline = time.monotonic() + 20
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def rank_0_of_two(job, folder):
    node = job.python(0, WORK, rank=0)
    wait_for(folder / "job.polyverso")
    return node


def test_without_back_ups_the_successor_of_a_drained_master_has_the_name(named, tmp_path):
    job = named(1, servers=2, log_level="info")
    master = first_server(job, tmp_path)
    other = job.server(1)
    worker = job.python(0, WORK)
    worker.hear("sum ")
    master.kill(signal.SIGTERM)
    other.hear("has this process as the master")
    again = job.python(1, "node = pv.init()\nsay('joined', node.rank)\nwait_for_word()\n")
    again.hear("joined ")


def first_to_say(nodes, text, seconds=40):
    deadline = time.monotonic() + seconds
    while True:
        for node in nodes:
            try:
                return node.hear(text, 0.1), node
            except AssertionError:
                assert time.monotonic() < deadline, text


def test_a_master_that_hangs_is_replaced_and_keeps_its_name_until_it_ends(named, tmp_path):
    job = named(1, servers=3, replicas=1, heartbeat_timeout_ms=1000, log_level="info")
    master = first_server(job, tmp_path)
    servers = [job.server(number) for number in (1, 2)]
    worker = job.python(0, WORK)
    worker.hear("sum ")
    master.kill(signal.SIGSTOP)
    worker.tell("step")
    assert worker.hear_attempt(40)[1] == "ok"
    line, successor = first_to_say(servers, "do not find this master yet")
    assert f"pid {master.process.pid} on " in line and "has the name" in line, line
    master.kill()
    successor.hear("has this process as the master")
    late = job.python(1, "node = pv.init()\nsay('joined', node.rank)\nwait_for_word()\n")
    late.hear("joined ")
    worker.tell("step")
    assert worker.hear_attempt(40)[1] == "ok"


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_process_that_waits_at_a_rank_0_that_hangs_follows_the_next_one(named, tmp_path, replicas):
    job = named(2, replicas=replicas)
    first = rank_0_of_two(job, tmp_path)
    first.kill(signal.SIGSTOP)
    other = job.python(1, WORK, rank=1)
    time.sleep(1)  # it has asked the folder, and is connected
    first.kill()
    nodes = [other, job.python(0, WORK, rank=0)]
    assert sums(nodes, 20) == whole(2)
    end(nodes)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "drained"])
def test_a_server_that_is_started_again_at_once_joins_its_cluster(named, tmp_path, how):
    job = named(1, servers=3, replicas=1, heartbeat_timeout_ms=1000)
    master = first_server(job, tmp_path)
    for number in (1, 2):
        job.server(number)
    worker = job.python(0, WORK)
    worker.hear("sum ")
    master.kill(how)
    master.process.wait(20)
    # Nobody has the name yet if the master was killed. Whoever took it would be rank 0 of a cluster of its own.
    again = job.python(1, "node = pv.init()\nsay('joined', node.rank, node.num_servers)\nwait_for_word()\n")
    assert again.hear("joined ", 30).endswith(" 0 3")
    for _ in range(2):
        worker.tell("step")
        assert worker.hear_attempt(40)[1] == "ok"


def test_a_lost_worker_is_replaced_by_a_process_that_knows_the_name(named, tmp_path):
    job = named(2, servers=1, heartbeat_timeout_ms=2000)
    server = first_server(job, tmp_path)
    nodes = [job.python(rank, WORK) for rank in range(2)]
    for node in nodes:
        node.hear("sum ")
    nodes[1].kill()
    nodes[1].process.wait()
    again = job.python(1, "node = pv.init()\nsay('worker', node.worker_id)\nattempt(node.shutdown)\n")
    again.hear("worker ")
    nodes[0].tell("")
    again.ends()
    nodes[0].ends()
    server.ends()


@pytest.mark.parametrize("settings, told", [
    (dict(nodes=None), "nodes is not"),
    (dict(nodes=2, keeper="etcd://127.0.0.1/job"), "is not HOST:PORT"),
    (dict(nodes=2, init_timeout_ms=500, rank=1), "has not appeared in the folder"),
    (dict(nodes=2, init_timeout_ms=500), "1 of 2"),
    (dict(nodes=2, secret=None, bind="0.0.0.0"), "needs a secret"),
])
def test_what_is_missing_is_an_error_and_never_a_cluster_of_one(named, settings, told):
    job = named(2)
    _, ending = job.python(0, JOIN, **settings).hear_attempt()
    assert ending != "ok" and told in ending, ending


def test_a_name_that_is_no_file_is_an_error_and_nobody_waits_for_it(named, tmp_path):
    job = named(2)
    os.mkfifo(tmp_path / "job.polyverso")
    for rank in (0, 1):
        ending = job.python(0, JOIN, rank=rank, init_timeout_ms=2000).hear_attempt(10)[1]
        assert "is not a regular file: remove it" in ending, ending


def test_a_folder_that_is_missing_is_named(named, tmp_path):
    ending = named(2, "missing/job").python(0, JOIN).hear_attempt()[1]
    assert f"there is no folder {tmp_path}/missing" in ending, ending


def test_a_loopback_address_of_another_machine_is_an_error(named, tmp_path, on_debian):
    job = named(2)
    node = job.python(0, JOIN, rank=0)
    deadline = time.monotonic() + 10
    while not list(tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    other = job.start(1, on_debian([sys.executable, "-c", PRELUDE + JOIN]), rank=1)
    ending = other.hear_attempt()[1]
    assert "reaches only that machine itself: set bind" in ending, ending
    node.kill()
