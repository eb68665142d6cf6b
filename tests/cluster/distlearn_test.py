"""torch-distlearn's two training loops on real images, in Lua: four processes with uneven shares, and ranks in Lua,
Python and Perl together."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "distlearn"
EPOCHS = "12"


def final_accuracy(text):
    return float(re.search(r"final accuracy ([\d.]+)", text)[1])


def alone(script, *arguments):
    command = ["luajit", str(EXAMPLES / script), "--epochs", EPOCHS, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def parameters(folder):
    return [[float(line) for line in path.read_text().splitlines()] for path in sorted(folder.glob("parameters-*.txt"))]


@pytest.mark.parametrize("interpreter", ["luajit", "lua5.4"])
def test_sgd_does_what_one_process_does_with_the_same_batches(run, interpreter, tmp_path):
    together, single = tmp_path / "together", tmp_path / "single"
    together.mkdir()
    single.mkdir()
    status, out, err = run("-n", "4", "--", interpreter, str(EXAMPLES / "mnist.lua"), "--epochs", EPOCHS, "--save", str(together))
    assert (status, err) == (0, "")
    reference = alone("mnist.lua", "--inPlaceOf", 4, "--save", single)
    assert final_accuracy(out) > 0.93
    assert abs(final_accuracy(out) - final_accuracy(reference)) < 0.003  # one image of 449
    nodes, (one,) = parameters(together), parameters(single)
    assert len(nodes) == 4 and len(one) == 64 * 32 + 32 + 32 * 10 + 10
    assert all(node == nodes[0] for node in nodes)  # bit-identical
    assert max(abs(a - b) for a, b in zip(nodes[0], one)) < 1e-9
    steps = {int(count) for count in re.findall(r": (\d+) steps here", out)}
    assert steps == {32}  # 32 steps for 259 images; other ranks have up to 51
    assert "global correct" in out


def test_elastic_averaging_comes_as_far_as_one_process(run):
    status, out, err = run("-n", "4", "--", "luajit", str(EXAMPLES / "mnist-ea.lua"), "--epochs", "30")
    assert (status, err) == (0, "")
    single = final_accuracy(alone("mnist.lua", "--batch", 32))
    assert final_accuracy(out) > single - 0.01


@pytest.mark.parametrize("loop", ["mnist", "mnist-ea"])
def test_ranks_in_lua_python_and_perl_train_together(tmp_path, loop):
    folders = [tmp_path / language for language in ("lua", "python", "perl")]
    for folder in folders:
        folder.mkdir()
    scripts = [["luajit", EXAMPLES / f"{loop}.lua"], [sys.executable, EXAMPLES / f"{loop.replace('-', '_')}.py"], ["perl", EXAMPLES / f"{loop}.pl"]]
    command = ["polyverso", "run", "-n", "3"]
    for number, (script, folder) in enumerate(zip(scripts, folders)):
        command += ["---" if number else "--", *script, "--epochs", "30", "--save", str(folder)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(float(accuracy) > 0.95 for accuracy in re.findall(r"final accuracy ([\d.]+)", done.stdout)), done.stdout
    kept = [np.loadtxt(*folder.glob("parameters-*.txt")) for folder in folders]
    assert (kept[1] == kept[2]).all()  # the same bits
    if loop == "mnist":  # in mnist-ea each rank keeps its own parameters, not the centre
        assert (kept[0] == kept[1]).all()
