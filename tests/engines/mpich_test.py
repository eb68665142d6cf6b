"""MPICH's mpiexec (Hydra): its processes are one cluster, by what Hydra really tells them."""

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import TRAIN, WHOLE, clusters_of, whole
from ports import free_ports

MPIEXEC = shutil.which("mpiexec.hydra") or shutil.which("mpiexec.mpich")
pytestmark = pytest.mark.skipif(MPIEXEC is None, reason="MPICH's mpiexec is missing: apt install mpich")
LIBMPICH = "libmpich.so.12"


@pytest.fixture
def mpiexec(engine):
    """mpiexec(*arguments, script=WHOLE, **variables): (status, output)."""

    def begin(*arguments, script=WHOLE, **variables):
        return engine.run(MPIEXEC, *arguments, sys.executable, "-B", engine.script(script), **variables)

    return begin


def master(port=None):
    return dict(POLYVERSO_MASTER=f"127.0.0.1:{port or free_ports()}")


def test_four_processes_are_one_cluster(mpiexec):
    status, out = mpiexec("-n", "4")
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4)], out


def test_two_runs_at_once_do_not_meet(mpiexec):
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(mpiexec, "-n", "2") for _ in range(2)]
    outs = [run.result() for run in runs]
    assert [status for status, _ in outs] == [0, 0], outs
    assert [list(clusters_of(out).values()) for _, out in outs] == [[whole(2)]] * 2, outs


def test_processes_whose_commands_are_wrapped_are_one_cluster(engine):
    script = engine.script(f"#!/bin/sh\n{sys.executable} -B {engine.script(WHOLE)}\nexit $?\n", "wrapper.sh")
    status, out = engine.run(MPIEXEC, "-n", "4", "sh", script)
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4)], out


def test_processes_that_cannot_meet_are_no_clusters_of_one(mpiexec):
    """Hydra takes the two names for two machines."""
    status, out = mpiexec("-launcher", "fork", "-hosts", "localhost,127.0.0.1", "-ppn", "2", "-n", "4")
    assert status != 0 and not clusters_of(out) and "set POLYVERSO_MASTER=host:port for all of them" in out, out


def test_two_machines_with_a_master_are_one_cluster(mpiexec):
    status, out = mpiexec("-launcher", "fork", "-hosts", "localhost,127.0.0.1", "-ppn", "2", "-n", "4", **master())
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4)], out


# MPICH's own library, which speaks PMI on the connection by which the processes found each other. The numbers are those of its mpi.h.
WITH_MPI = TRAIN + f"""
import ctypes
mpi = ctypes.CDLL("{LIBMPICH}")
WORLD, INT, SUM = (ctypes.c_int(number) for number in (0x44000000, 0x4c000405, 0x58000003))

def begin():
    assert mpi.MPI_Init(None, None) == 0

def reduce():
    mine, total = ctypes.c_int(1 + int(os.environ["PMI_RANK"])), ctypes.c_int()
    assert mpi.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(total), 1, INT, SUM, WORLD) == 0
    say("MPI has", total.value)
"""
MPI_LATER = WITH_MPI + """
with pv.init() as node:
    train(node)
    begin()
    reduce()
    train(node, "more sums")
    assert mpi.MPI_Finalize() == 0
"""
MPI_FIRST = WITH_MPI + """
begin()
with pv.init() as node:
    train(node)
    reduce()
assert mpi.MPI_Finalize() == 0
"""


@pytest.mark.parametrize("script, trained", [(MPI_LATER, 2), (MPI_FIRST, 1)], ids=["later", "first"])
def test_an_mpi_program_has_both(mpiexec, script, trained):
    status, out = mpiexec("-n", "4", script=script)
    assert status == 0, out
    assert out.count("MPI has 10") == 4, out
    assert list(clusters_of(out).values()) == [whole(4)] * trained, out


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
