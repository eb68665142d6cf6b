"""MPICH's mpiexec (Hydra): its processes are one cluster, by what Hydra really tells them."""

import shutil
import sys

import pytest
from conftest import TRAIN, WHOLE, clusters_of, whole

MPIEXEC = shutil.which("mpiexec.hydra") or shutil.which("mpiexec.mpich")
pytestmark = pytest.mark.skipif(MPIEXEC is None, reason="MPICH's mpiexec is missing: apt install mpich")


@pytest.fixture
def mpiexec(engine):
    """mpiexec(*arguments, script=WHOLE, **variables): (status, output)."""

    def begin(*arguments, script=WHOLE, **variables):
        return engine.run(MPIEXEC, *arguments, sys.executable, "-B", engine.script(script), **variables)

    return begin


def test_four_processes_are_one_cluster(mpiexec):
    status, out = mpiexec("-n", "4")
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(4)], out


def test_one_process_is_a_cluster_of_one(mpiexec):
    status, out = mpiexec("-n", "1")
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(1)], out
