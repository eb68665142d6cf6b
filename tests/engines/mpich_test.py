"""MPICH's mpiexec (Hydra): its processes are one cluster, by what Hydra really tells them."""

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import TRAIN, WHOLE, clusters_of, whole
from ports import free_ports

MPIEXEC = shutil.which("mpiexec.hydra") or shutil.which("mpiexec.mpich")
pytestmark = pytest.mark.skipif(MPIEXEC is None, reason="MPICH's mpiexec is missing: apt install mpich")
NO_NAME = "Hydra gives its processes PMI_FD, a connection, and none of PMI_PORT and PMI_JOBID: the job's name has to be asked for there"


@pytest.fixture
def mpiexec(engine):
    """mpiexec(*arguments, script=WHOLE, **variables): (status, output)."""

    def begin(*arguments, script=WHOLE, **variables):
        return engine.run(MPIEXEC, *arguments, sys.executable, "-B", engine.script(script), **variables)

    return begin


def master(port=None):
    return dict(POLYVERSO_MASTER=f"127.0.0.1:{port or free_ports()}")


@pytest.mark.xfail(strict=True, reason=NO_NAME)
def test_four_processes_are_one_cluster(mpiexec):
    status, out = mpiexec("-n", "4")
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4)], out


@pytest.mark.xfail(strict=True, reason=NO_NAME)
def test_two_runs_at_once_do_not_meet(mpiexec):
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(mpiexec, "-n", "2") for _ in range(2)]
    outs = [run.result() for run in runs]
    assert [status for status, _ in outs] == [0, 0], outs
    assert [list(clusters_of(out).values()) for _, out in outs] == [[whole(2)]] * 2, outs


def test_processes_that_cannot_meet_are_no_clusters_of_one(mpiexec):
    status, out = mpiexec("-n", "4")
    together = list(clusters_of(out).values()) == [whole(4)]
    assert together or (status != 0 and not clusters_of(out) and "set POLYVERSO_MASTER=host:port for all of them" in out), out


def test_processes_that_get_a_port_instead_of_a_connection_are_no_clusters_of_one(mpiexec):
    status, out = mpiexec("-pmi-port", "-n", "4")
    together = list(clusters_of(out).values()) == [whole(4)]
    assert together or (status != 0 and not clusters_of(out)), out


def test_four_processes_with_a_master_are_one_cluster(mpiexec):
    status, out = mpiexec("-n", "4", **master())
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4)], out


def test_one_process_is_a_cluster_of_one(mpiexec):
    status, out = mpiexec("-n", "1")
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(1)], out


def test_clusters_of_one_when_told(mpiexec):
    status, out = mpiexec("-n", "2", POLYVERSO_LAUNCHER="none")
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(1)] * 2, out


DYING = TRAIN + """
import signal
with pv.init() as node:
    train(node)
    if node.worker_id == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    node.barrier()
    say("went on")
"""


def test_a_killed_process_ends_the_job(mpiexec):
    """Hydra kills the others; none of them goes on without the lost one before that."""
    status, out = mpiexec("-n", "4", script=DYING, **master())
    assert status != 0 and "went on" not in out, out
    assert list(clusters_of(out).values()) == [whole(4)], out
