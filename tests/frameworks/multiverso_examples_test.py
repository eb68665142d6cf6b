"""examples/multiverso: the scripts of the frameworks that this interpreter has, compared by compare.py."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

EXAMPLES = ROOT / "examples" / "multiverso"


def has(framework):
    return importlib.util.find_spec(framework) is not None


def compare(script, *options):
    """[(workers, loss, error)] of one worker and of several."""
    # JAX's optimizations take longer than all steps of such small networks.
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", str(EXAMPLES / "compare.py"), script, *options], timeout=400,
                          capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^ +(\d+) +([\d.]+) +([\d.]+) ", done.stdout, re.MULTILINE)
    return [(int(workers), float(loss), float(error)) for workers, loss, error in rows]


@pytest.mark.parametrize("script, framework, epochs", [
    ("theano_logistic_regression.py", "theano", 6), ("theano_convnet.py", "theano", 4), ("lasagne_cnn.py", "lasagne", 5),
    ("keras_mlp.py", "keras", 6), ("keras_addition_rnn.py", "keras", 2)])
def test_several_workers_learn_as_one(script, framework, epochs, tmp_path):
    if not has(framework):
        pytest.skip(f"{framework} is not installed here")
    picture = tmp_path / "losses.svg"
    plot = ["--plot", str(picture)] if script == "keras_mlp.py" and has("matplotlib") else []  # one is enough
    (_, alone, _), (workers, together, _) = compare(script, "-n", "2", "--epochs", str(epochs), *plot)
    assert workers == 2 and together < alone * 1.25 + 0.05, (alone, together)
    assert not plot or picture.read_text(encoding="utf-8").count("<path") > 5


@pytest.mark.skipif(not has("theano") or shutil.which("mpirun") is None, reason="needs Theano and mpirun")
def test_mpirun_starts_them():
    rows = compare("theano_logistic_regression.py", "-n", "4", "--launcher", "mpirun", "--epochs", "3")
    assert [row[0] for row in rows] == [1, 4] and rows[1][1] < rows[0][1] * 1.25
