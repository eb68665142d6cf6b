"""multiverso.theano_ext.lasagne_ext with the real Lasagne on Theano 1.0.5."""

import os
import subprocess
import sys

import multiverso as mv
import numpy as np
import pytest
from conftest import run_workers
from multiverso.theano_ext.lasagne_ext import param_manager

import lasagne

NETWORK = """
import lasagne
layer = lasagne.layers.InputLayer((None, 1, 8, 8))
layer = lasagne.layers.Conv2DLayer(layer, 4, (3, 3))
layer = lasagne.layers.MaxPool2DLayer(layer, (2, 2))
network = lasagne.layers.DenseLayer(layer, 10)
"""


def build():
    names = {}
    exec(NETWORK, names)
    return names["network"]


@pytest.fixture(autouse=True)
def cluster():
    mv.init()
    yield
    mv.shutdown()


def test_changes_are_added():
    network = build()
    before = [np.array(value) for value in lasagne.layers.get_all_param_values(network)]
    manager = param_manager.LasagneParamManager(network)
    after = lasagne.layers.get_all_param_values(network)
    assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(before, after))
    lasagne.layers.set_all_param_values(network, [value + 1 for value in after])
    manager.sync_all_param()
    assert all(np.allclose(a, b + 1) for a, b in zip(lasagne.layers.get_all_param_values(network), before))
    assert manager.all_param_list.size == sum(value.size for value in before)


WORKER = f"""
import time
import multiverso as mv
from multiverso.theano_ext.lasagne_ext import param_manager
import numpy as np
mv.init()
np.random.seed(mv.worker_id())
{NETWORK}
if mv.worker_id() == 1:
    import multiverso.theano_ext.synced as synced
    get = synced.SyncedArray._get
    synced.SyncedArray._get = lambda self: (time.sleep(0.5), get(self))  # a slow worker
manager = param_manager.LasagneParamManager(network)
start = [np.array(value) for value in lasagne.layers.get_all_param_values(network)]
lasagne.layers.set_all_param_values(network, [value + mv.worker_id() + 1 for value in start])
manager.sync_all_param()
mv.barrier()
manager.sync_all_param()
end = lasagne.layers.get_all_param_values(network)
print("first", float(start[0].ravel()[0]), "gained", round(float((end[0] - start[0]).mean()), 4))
mv.shutdown()
"""


@pytest.mark.parametrize("first", ["multiverso.theano_ext", "multiverso.theano_ext.sharedvar", "multiverso.theano_ext, theano"])
def test_the_package_makes_lasagne_importable(first):
    script = f"""
import multiverso.theano_ext, sys
assert not {{"theano", "lasagne"}} & set(sys.modules)
import {first}
{NETWORK}
from theano.tensor.signal import downsample
assert downsample.DownsampleFactorMax
"""
    flags = os.environ.get("THEANO_FLAGS", "").replace(",blas.ldflags=", "")  # without them Theano reads NumPy's configuration
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "THEANO_FLAGS": flags}, capture_output=True, text=True,
                          timeout=100)
    assert done.returncode == 0, done.stderr


def test_the_masters_network_wins_and_changes_are_summed():
    out = run_workers(2, WORKER)
    said = [line.split("] ")[1] for line in out.splitlines() if "first" in line]
    assert len(said) == 2 and said[0] == said[1] and said[0].endswith("gained 3.0"), out
