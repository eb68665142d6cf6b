"""Groups whose ranks die or hang at random moments: each survivor learns which rank is lost, and all continue
together."""

import os
import random
import signal
import sys
import time

import pytest

from groups import REDUCER

RANKS = 4
EACH = int(os.environ.get("POLYVERSO_TEST_KILLS", "20")) // 2  # nightly runs use more
SECONDS = 60.0  # limit of each wait; generous, for a busy machine


def reducers(cluster, longest, **settings):
    job = cluster(RANKS, **settings)
    nodes = [job.start(rank, [sys.executable, "-c", REDUCER, str(longest)]) for rank in range(RANKS)]
    for node in nodes:
        node.hear("up", SECONDS)
    return nodes


def expect_survivors(nodes, victim):
    others = [rank for rank in range(RANKS) if rank != victim]
    for rank in others:
        told = nodes[rank].hear("lost ", SECONDS)
        assert told.startswith("lost MV_EPEERLOST") and f"worker {victim}" in told, told
    for rank in others:
        told = nodes[rank].hear("goes on", SECONDS)
        assert told == f"goes on {RANKS - 1} " + " ".join(map(str, others)), told


@pytest.mark.parametrize("seed", range(EACH))
def test_a_killed_rank_is_named_and_the_survivors_go_on(cluster, seed):
    dice = random.Random(seed)
    nodes = reducers(cluster, dice.choice([1, 100_000]))
    victim = seed % RANKS  # includes the cluster's master
    time.sleep(dice.uniform(0, 0.3))
    nodes[victim].kill()
    expect_survivors(nodes, victim)


@pytest.mark.parametrize("seed", range(EACH))
def test_a_stopped_rank_counts_as_lost_after_the_heartbeats_limit(cluster, seed):
    dice = random.Random(100 + seed)
    nodes = reducers(cluster, dice.choice([1, 100_000]), heartbeat_timeout_ms=2000)
    victim = seed % RANKS
    time.sleep(dice.uniform(0, 0.3))
    nodes[victim].kill(signal.SIGSTOP)
    expect_survivors(nodes, victim)
    nodes[victim].kill(signal.SIGKILL)
