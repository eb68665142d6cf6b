"""An all-reduce sends the bytes that the formula gives, and a waiting rank uses almost no CPU time."""

import json
import pathlib
import sys

import pytest

from conftest import Run

PROGRAM = pathlib.Path(__file__).parents[2] / "bench" / "programs" / "group_figures.py"
SECONDS = 1.5


def figures(ranks, size, *settings):
    run = Run("run", "-n", str(ranks), "--no-color", *settings, "--", sys.executable, "-B", str(PROGRAM), str(size), str(SECONDS))
    status, out, err = run.finish(timeout=120)
    assert status == 0, out + err
    return json.loads(out[out.index("{"):])


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_rank_sends_what_a_ring_sends(ranks):
    size = 24 << 20
    told = figures(ranks, size, "--set", "transport=tcp")
    assert told["transport"] == "messages"
    assert told["sent"] == pytest.approx(2 * (ranks - 1) / ranks * size, rel=0.03)


@pytest.mark.parametrize("transport", ["tcp", "auto"])
def test_who_waits_uses_no_processor(transport):
    told = figures(4, 4096, "--set", f"transport={transport}")
    assert told["cpu"] < 0.02 * SECONDS  # the heartbeats, and spinning for 50 us before sleeping
