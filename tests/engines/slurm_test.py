"""Slurm, really run: slurmctld, slurmd and munged of these tests, and jobs of the kinds that users start."""

import shutil
import sys

import pytest
import slurm as slurms
from conftest import TRAIN, WHOLE, an_engine, clusters_of, whole

REASON = slurms.why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
PYTHON = f"{sys.executable} -B"


WARNED = TRAIN + """
import signal
warned = []
signal.signal(signal.SIGUSR1, lambda number, frame: warned.append(number))
with pv.init() as node:
    train(node)
    with pv.Group(node) as group:
        steps = 0
        while True:  # all leave after the same step
            steps += 1
            if group.allreduce(np.array([len(warned)], np.float32))[0] == node.num_workers:
                break
            time.sleep(0.05)
        say("warned, left after step", steps)
"""


@pytest.fixture(scope="module")
def slurm():
    """A Slurm that takes jobs. `warned` is one that runs beside the tests, until the last of them."""
    with an_engine() as engine:
        made = slurms.Slurm(engine)
        try:
            made.begin()
            # Slurm looks every 30 s whether the limit of two minutes is less than 90 s away: it allows for a delay of 30 s.
            wrapped = f"srun {PYTHON} {engine.script(WARNED, 'warned.py')}"
            made.warned = made.submit("-n", "4", "--time=2", "--signal=USR1@60", "--wrap", wrapped)
            yield made
        finally:
            made.end()


def srun(slurm, *arguments, script=WHOLE, **variables):
    return slurm.run("srun", *arguments, *PYTHON.split(), slurm.engine.script(script), **variables)


def test_srun_makes_one_cluster_of_four(slurm):
    status, out = srun(slurm, "-n", "4")
    assert status == 0, out + slurm.logs()
    assert list(clusters_of(out).values()) == [whole(4)], out


def test_srun_that_speaks_pmi_makes_one_cluster_of_four(slurm):
    status, out = srun(slurm, "--mpi=pmi2", "-n", "4")
    assert status == 0, out + slurm.logs()
    assert list(clusters_of(out).values()) == [whole(4)], out


def test_srun_of_one_task_is_a_cluster_of_one(slurm):
    status, out = srun(slurm, "-n", "1")
    assert status == 0, out
    assert list(clusters_of(out).values()) == [whole(1)], out


def test_two_steps_of_one_job_at_once_do_not_meet(slurm):
    step = f"srun --exact -n 2 {PYTHON} {slurm.engine.script(WHOLE)} &\n"
    job = slurm.submit("-n", "4", slurm.engine.script("#!/bin/sh\n" + step * 2 + "wait\n", "steps.sh"))
    slurm.wait_for(job, "COMPLETED")
    out = slurm.output(job)
    assert list(clusters_of(out).values()) == [whole(2), whole(2)], out


def test_a_batch_script_without_srun_is_a_cluster_of_one_and_warned(slurm):
    job = slurm.submit("-n", "4", "--wrap", f"{PYTHON} {slurm.engine.script(WHOLE)}", POLYVERSO_LOG_LEVEL="warn")
    slurm.wait_for(job, "COMPLETED")
    out = slurm.output(job)
    assert list(clusters_of(out).values()) == [whole(1)], out
    assert "this process was not started by srun: it is a cluster of one process" in out


@pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="mpirun.openmpi is missing: apt install openmpi-bin")
def test_mpirun_inside_of_a_job_counts_instead_of_slurm(slurm):
    variables = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    job = slurm.submit("-n", "4", "--wrap", f"mpirun.openmpi -np 4 {PYTHON} {slurm.engine.script(WHOLE)}", **variables)
    slurm.wait_for(job, "COMPLETED")
    out = slurm.output(job)
    assert list(clusters_of(out).values()) == [whole(4)], out


def test_each_element_of_an_array_is_a_cluster_of_its_own(slurm):
    job = slurm.submit("-n", "2", "--array=0-2", "--wrap", f"srun {PYTHON} {slurm.engine.script(WHOLE)}")
    slurm.wait_for(job, "COMPLETED")
    outs = [slurm.output(job, element) for element in range(3)]
    clusters = [clusters_of(out) for out in outs]
    assert [list(each.values()) for each in clusters] == [[whole(2)]] * 3, outs
    assert len(set().union(*clusters)) == 3


REQUEUED = TRAIN + """
with pv.init() as node:
    train(node)
    if "SLURM_RESTART_COUNT" not in os.environ:
        node.barrier()
        say("waits")
        time.sleep(600)
    say("ended after restart", os.environ["SLURM_RESTART_COUNT"])
"""


def test_a_requeued_job_is_a_new_cluster(slurm):
    job = slurm.submit("-n", "4", "--requeue", "--wrap", f"srun {PYTHON} {slurm.engine.script(REQUEUED)}")
    slurm.wait_for_output(job, "waits", 4)
    slurm.call("scontrol", "requeue", job)
    slurm.wait_for_output(job, "ended after restart 1", 4)
    slurm.wait_for(job, "COMPLETED")
    out = slurm.output(job)
    assert list(clusters_of(out).values()) == [whole(4), whole(4)], out
    assert slurm.job(job)["Restarts"] == "1"


DYING = TRAIN + """
import signal
with pv.init() as node:
    train(node)
    if node.worker_id == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        node.barrier()
    except pv.PeerError as error:
        say("worker", node.worker_id, "hears:", error)
        os._exit(0)
"""


def test_a_killed_task_is_named_to_the_others(slurm):
    status, out = srun(slurm, "-n", "4", "--kill-on-bad-exit=0", script=DYING)
    assert status != 0
    heard = [line for line in out.splitlines() if "hears:" in line]
    assert len(heard) == 3 and all("worker 2" in line.partition("hears:")[2] for line in heard), out


def test_a_job_that_is_warned_before_its_limit_ends_by_itself(slurm):
    """It has begun before the other tests."""
    slurm.wait_for(slurm.warned, "COMPLETED", seconds=150)
    out = slurm.output(slurm.warned)
    assert list(clusters_of(out).values()) == [whole(4)], out
    steps = [line for line in out.splitlines() if line.startswith("warned")]
    assert len(steps) == 4 and len(set(steps)) == 1, out
