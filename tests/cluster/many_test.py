"""Many processes: they connect with those that they have requests for, so a cluster of n starts with n connections."""

import os
import re
import time

import pytest

from conftest import Run

WORKER = os.environ["MANY_WORKER"]


def run(count, what, *more, limit=120):
    """Runs `count` processes, each a worker and a server unless `more` says otherwise. Returns what ranks 0 and the last
    report, and everything that was printed."""
    job = Run("run", "-n", str(count), *more, "--", WORKER, what, env={"STARTED": str(time.time())})
    status, out, err = job.finish(limit)
    job.wait_until_gone()
    reports = {int(rank): (float(started), int(descriptors), int(memory)) for rank, started, descriptors, memory in
               re.findall(r"rank=(\d+) started_s=([\d.]+) descriptors=(\d+) memory_kib=(\d+)", out)}
    return status, reports, out + err


def test_256_processes_start_and_end():
    status, reports, said = run(256, "none")
    assert status == 0, said
    assert said.count("ended") == 256
    assert set(reports) == {0, 255}, said


def test_a_process_holds_no_connection_that_it_has_not_used():
    few, many = (run(count, "none")[1][count - 1] for count in (4, 48))
    assert many[1] < few[1] + 10  # descriptors, five for each connection: one with rank 0 may not have them all yet
    assert many[2] < few[2] + 2048  # KiB


def test_all_add_to_all():
    status, _, said = run(24, "add")
    assert status == 0 and "wrong" not in said, said
    assert said.count("ended") == 24


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_all_reduce_of_many_ranks(transport):
    """More ranks than share memory in a group. Each is connected with those that its all-reduce takes, and with rank 0."""
    status, _, said = run(80, "meet", "--set", f"transport={transport}")
    assert status == 0 and "allreduce_us" in said, said
    each = 5 if transport == "auto" else 1
    assert int(re.search(r"descriptors_in_group=(\d+)", said)[1]) < 20 + 2 * 7 * each, said  # seven steps


def test_workers_connect_with_servers_that_they_use():
    status, reports, said = run(16, "add", "--servers", "2")
    assert status == 0 and "wrong" not in said, said


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_without_rank_0_the_others_end(transport):
    """Nobody tells them any more who has left: they connect with each other, and tell each other."""
    count = 32
    status, _, said = run(count, "orphan", "--keep-going", "--set", f"transport={transport}", limit=60)
    assert status == 137, said  # rank 0's
    assert said.count("ended") + len(re.findall(r"shutdown: MV_EPEERLOST", said)) == count - 1, said
    assert "internal" not in said and "SIGSEGV" not in said and "SIGABRT" not in said, said
