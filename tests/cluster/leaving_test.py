"""How a process ends, and what the others hear of it."""

import os
import re
import signal
import time

import pytest

from conftest import COMMAND, Run

WORKER = os.environ["LEAVING_WORKER"]


@pytest.fixture(params=["auto", "tcp"])
def run(request):
    """Runs three workers that are servers, and a worker 1 that ends as `how` says: their lines, and the time it took."""

    def start(how, *more):
        begun = time.monotonic()
        job = Run("run", "-n", "3", "--keep-going", "--set", f"transport={request.param}", *more, "--", WORKER, how)
        status, out, err = job.finish()
        job.wait_until_gone()
        return out, err, time.monotonic() - begun

    return start


def barriers(out):
    return re.findall(r"^\[w\d\] barrier: (.*)$", out, re.MULTILINE)


@pytest.mark.parametrize("how", ["abort", "abort twice inited", "return 3", "exit 5"])
def test_a_failed_worker_is_lost_with_its_reason(run, how):
    out, err, took = run(how)
    reason = {
        "abort": r"ValueError: 7 is not a rate",
        "abort twice inited": r"it gave no reason",
        "return 3": r"its process ended with exit status 3 without calling shutdown\(\)",
        "exit 5": r"its process ended with exit status 5 without calling shutdown\(\)",
    }[how]
    heard = barriers(out)
    assert len(heard) == 2, out + err
    for line in heard:
        assert re.search(rf"MV_EPEERLOST: .*worker 1: {reason} \(rank 1, pid \d+ on ", line), out + err
    if how == "abort":
        assert "after: MV_ESTATE" in out
    assert took < 8


@pytest.mark.parametrize("how", ["_exit 0", "kill"])
def test_a_process_that_just_ends_is_lost(run, how):
    out, err, took = run(how)
    heard = barriers(out)
    assert len(heard) == 2, out + err
    for line in heard:
        assert re.search(r"MV_EPEERLOST: .*worker 1 .*its process ended without calling shutdown\(\)", line), out + err
    assert took < 8


@pytest.mark.parametrize("how", ["return 0", "exit 0", "handler", "thread", "child"])
def test_a_process_that_ends_well_is_shut_down(run, how):
    out, err, took = run(how)
    assert [line.split(":")[0] for line in barriers(out)] == ["MV_OK", "MV_OK"], out + err
    wanted = {"return 0": "1000", "handler": "1"}.get(how, "0")
    assert re.findall(r"value: (\S+)", out) == [wanted, wanted], out + err
    assert took < 8


def test_a_server_that_ends_well_serves_to_the_end(run):
    out, err, _ = run("exit 0", "--servers", "1")
    assert [line.split(":")[0] for line in barriers(out)] == ["MV_OK", "MV_OK"], out + err
