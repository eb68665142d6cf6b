"""polyverso doctor --tune: its measurements, the use of its results, and groups whose ranks have different costs."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from conftest import COMMAND
from launchers_test import environment

ROADS = {
    "transport": str, "workers": list, "alpha_us": float, "beta_ns": float, "error": float, "default_alpha_us": float, "default_beta_ns": float,
    "why_not_shm": str, "cost": str,
}
TRIAL = {"transport": str, "bytes": int, "algorithm": str, "by_host": bool, "predicted_us": float, "measured_us": float}

# All-reduces of several sizes in a group of all workers, by messages.
REDUCER = """
import ctypes
mv = ctypes.CDLL("libpolyverso.so.0")
mv.mv_last_error.restype = ctypes.c_char_p
def check(status):
    assert status == 0, mv.mv_last_error().decode()
i64, u64, i32 = ctypes.c_int64, ctypes.c_uint64, ctypes.c_int32
group, size = i64(), i64()
check(mv.mv_init(None))
check(mv.mv_size(i64(0), ctypes.byref(size)))
check(mv.mv_group_open(i64(0), None, u64(0), ctypes.byref(group)))
for count in (1, 300, 20_000, 300_000):
    array = (ctypes.c_float * count)(*([1.0] * count))
    check(mv.mv_allreduce(group, None, array, u64(count), i32(1), i32(1), None))
    assert array[0] == array[count - 1] == size.value
check(mv.mv_shutdown(i64(0)))
print("reduced", flush=True)
"""


def tune(*words, **variables):
    done = subprocess.run([shutil.which(COMMAND), "doctor", "--tune", *words], env=environment(**variables), capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def has_form(value, form):
    assert list(value) == list(form), value
    for key, kind in form.items():
        assert isinstance(value[key], kind), (key, value[key])


def check_form(report):
    assert report["schema"] == 1
    for transport in report["transports"]:
        has_form(transport, ROADS)
        assert transport["alpha_us"] >= 0 and transport["beta_ns"] >= 0 and transport["alpha_us"] + transport["beta_ns"] > 0
    for trial in report["trials"]:
        has_form(trial, TRIAL)
        assert trial["measured_us"] > 0


def test_a_machine_by_itself_is_measured_on_all_its_transports(tmp_path, run):
    costs = tmp_path / "costs.sh"
    status, out, err = tune("--json", "--output", str(costs))
    assert status == 0, err
    report = json.loads(out)
    check_form(report)
    transports = [transport["transport"] for transport in report["transports"]]
    assert transports in (["inproc", "shm", "tcp"], ["inproc", "shm", "tcp", "ucx"])  # ucx: where libucx-dev was found by the build
    assert {trial["transport"] for trial in report["trials"]} == set(transports) and report["workers"] == 2
    assert report["collective_costs"].startswith("inproc=") and " reduce=" in report["collective_costs"]
    assert costs.read_text() == f'export POLYVERSO_COLLECTIVE_COSTS="{report["collective_costs"]}"\n'
    # Use the results in a run.
    script = f". {costs}; exec {sys.executable} -c '{REDUCER}'"
    status, out, err = run("-n", "2", "--set", "transport=tcp", "--", "sh", "-c", script)
    assert status == 0 and out.count("reduced") == 2, err
    status, out, err = run("-n", "2", "--set", "transport=tcp", "--set", f"collective_costs={report['collective_costs']}", "--", sys.executable, "-c", REDUCER)
    assert status == 0 and out.count("reduced") == 2, err


def test_the_workers_of_a_launcher_measure_between_them(run):
    status, out, err = run("-n", "3", "--set", "transport=tcp", "--", COMMAND, "doctor", "--tune", timeout=120)
    assert status == 0, err
    assert "between 3 workers on one machine" in out and "tcp " in out and "shm " not in out
    assert out.count("export POLYVERSO_COLLECTIVE_COSTS=\"tcp=") == 1  # only one of them prints


def test_a_worker_with_nobody_beside_it_is_told_so(run):
    status, _, err = run("-n", "1", "--servers", "1", "--", COMMAND, "doctor", "--tune")
    assert status == 1 and "measuring needs at least two workers" in err and "polyverso run -n 2" in err


@pytest.mark.parametrize("words", [["--join"], ["--master", "a:1"], ["--workers", "1"]])
def test_wrong_usage_is_told(words):
    status, _, err = tune(*words)
    assert status == 2 and "polyverso: " in err
    done = subprocess.run([shutil.which(COMMAND), "doctor", "--output", "x"], capture_output=True, text=True)
    assert done.returncode == 2 and "--tune" in done.stderr


def test_costs_that_are_none_are_told_before_anything_starts():
    status, _, err = tune(POLYVERSO_COLLECTIVE_COSTS="shm=1")
    assert status == 1 and 'collective_costs="shm=1": shm=1: expected two numbers' in err


@pytest.mark.parametrize("transport", ["tcp", "auto"])  # with faults, even only a seed, groups use messages
def test_ranks_with_different_costs_choose_alike(cluster, transport):
    """All ranks use the lowest rank's costs. By its own costs, one would choose a ring, the others the fewest
    messages."""
    job = cluster(3, transport=transport, faults="seed=1")
    costs = ["shm=1,0 tcp=1,0 reduce=0", "shm=0,0 tcp=0,0 reduce=1", ""]
    nodes = [job.start(rank, [sys.executable, "-c", REDUCER], collective_costs=costs[rank]) for rank in range(3)]
    for node in nodes:
        node.hear("reduced", 60)
