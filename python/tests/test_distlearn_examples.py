"""examples/distlearn in Python: four ranks with unequal shares get the result of one process."""

import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "distlearn"
OPTIONS = ["--epochs", "30"]


def run(command, folder):
    done = subprocess.run([*command, "--save", str(folder)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return float(re.search(r"final accuracy ([\d.]+)", done.stdout)[1])


def saved(folder, rank):
    return np.loadtxt(folder / f"parameters-{rank}.txt")


@pytest.fixture
def alone(tmp_path):
    folder = tmp_path / "alone"
    folder.mkdir()
    accuracy = run([sys.executable, EXAMPLES / "mnist.py", "--in-place-of", "4", *OPTIONS], folder)
    return accuracy, saved(folder, 0)


@pytest.mark.skipif(shutil.which("polyverso") is None, reason="polyverso is not on PATH")
def test_four_ranks_do_what_one_process_does(tmp_path, alone):
    launcher = ["polyverso", "run", "-n", "4", "--"]
    accuracy = run([*launcher, sys.executable, EXAMPLES / "mnist.py", *OPTIONS], tmp_path)
    assert accuracy == pytest.approx(alone[0], abs=0.005)
    for rank in range(4):
        assert (saved(tmp_path, rank) == saved(tmp_path, 0)).all()  # the same bits
    np.testing.assert_allclose(saved(tmp_path, 0), alone[1], rtol=1e-6, atol=1e-9)

    elastic = run([*launcher, sys.executable, EXAMPLES / "mnist_ea.py", *OPTIONS], tmp_path)
    assert elastic > alone[0] - 0.01
