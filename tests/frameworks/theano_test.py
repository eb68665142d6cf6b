"""multiverso.theano_ext.sharedvar with the real Theano, aesara or pytensor: whichever this interpreter has."""

import pickle
import re
import subprocess
import sys
import textwrap

import multiverso as mv
import numpy as np
import pytest
from conftest import run_workers
from multiverso.theano_ext import graph_library, sharedvar

import polyverso

library = graph_library.find()
tensor = __import__(f"{library.__name__}.tensor", fromlist=["x"])


@pytest.fixture(autouse=True)
def cluster():
    mv.init()
    yield
    mv.shutdown()


def shared(value, **more):
    return sharedvar.mv_shared(value=np.asarray(value, "float32"), name="W", borrow=True, **more)


def test_it_is_a_shared_variable_of_the_library():
    W = shared([[1, 2], [3, 4]])
    plain = library.shared(np.zeros((2, 2), "float32"))
    assert isinstance(W, type(plain)) and W.name == "W" and W.ndim == 2
    x = tensor.matrix("x", dtype="float32")
    forward = library.function([x], tensor.dot(x, W))
    assert forward(np.eye(2, dtype="float32")).tolist() == [[1, 2], [3, 4]]


def test_updates_givens_and_arithmetic():
    W = shared([1, 2])
    step = library.function([], [], updates=[(W, W + np.float32(1))])
    step()
    assert W.get_value().tolist() == [2, 3]
    x = tensor.vector("x", dtype="float32")
    assert library.function([], x * 2, givens={x: W})().tolist() == [4, 6]
    y = W
    y += np.float32(10)  # a new expression, as with theano.shared
    assert y.eval().tolist() == [12, 13] and W.get_value().tolist() == [2, 3]
    loss = (W ** 2).sum()
    assert library.function([], tensor.grad(loss, W))().tolist() == [4, 6]


def test_a_sync_adds_the_change():
    W = shared([1, 2])
    W.set_value(np.asarray([1.5, 5], "float32"))
    W.mv_sync()
    assert W.get_value().tolist() == [1.5, 5]
    W.mv_sync()
    assert W.get_value().tolist() == [1.5, 5]


@pytest.mark.parametrize("value", [np.float64(1 / 3), np.arange(6).reshape(2, 3), np.zeros((0, 3), "float32"),
                                   np.full((2, 2), 1 / 3), np.ones((3, 1), "int32")])
def test_every_shape_and_dtype(value):
    W = sharedvar.mv_shared(value)
    W.set_value(W.get_value() + W.get_value())
    W.mv_sync()
    assert (W.get_value() == np.asarray(value) * 2).all() and W.get_value().dtype == np.asarray(value).dtype


def test_what_no_table_holds_is_refused():
    with pytest.raises(TypeError, match="complex128"):
        sharedvar.mv_shared(np.zeros(3, "complex128"))
    with pytest.raises(TypeError, match="not a list|not a str|array"):
        sharedvar.mv_shared("text")


def test_all_are_synchronised():
    first, second = shared([1]), shared([2])
    for variable in (first, second):
        variable.set_value(variable.get_value() + 1)
    sharedvar.sync_all_mv_shared_vars()
    assert first.tag.synced.latest.tolist() == [2] and second.tag.synced.latest.tolist() == [3]


def test_variables_of_an_earlier_cluster_are_left_out():
    old = shared([1])
    mv.shutdown()
    with pytest.raises(polyverso.StateError):
        sharedvar.sync_all_mv_shared_vars()
    mv.init()
    new = shared([5])
    new.set_value(np.asarray([6], "float32"))
    sharedvar.sync_all_mv_shared_vars()
    assert new.tag.synced.latest.tolist() == [6] and old not in sharedvar.mv_shared.shared_vars


def test_a_pickle_has_the_value_and_no_table():
    W = shared([[1, 2]])
    copy = pickle.loads(pickle.dumps(W))
    assert copy.get_value().tolist() == [[1, 2]] and copy.name == "W"
    assert library.function([], copy * 2)().tolist() == [[2, 4]]
    with pytest.raises(polyverso.StateError, match="has no table"):
        copy.mv_sync()
    W.mv_sync()


def test_messages_name_the_variable():
    named, unnamed = shared([1, 2, 3]), sharedvar.mv_shared(np.zeros(3, "float32"))
    place = sharedvar.mv_shared.shared_vars.index(unnamed)
    for variable, name in ((named, 'the shared variable "W"'), (unnamed, f"mv_shared.shared_vars[{place}]")):
        variable.set_value(np.zeros(5, "float32"))
        with pytest.raises(ValueError, match=re.escape(f"{name}: the shape was (3,) and is now (5,)")):
            sharedvar.sync_all_mv_shared_vars()
        variable.set_value(np.zeros(3, "float32"))
    mv.shutdown()
    for variable, name in ((named, 'the shared variable "W"'), (unnamed, f"mv_shared.shared_vars[{place}]")):
        with pytest.raises(ValueError, match=re.escape(f"{name} is used after shutdown")):
            variable.mv_sync()
    mv.init()


def test_a_clone_has_the_same_table():
    W = shared([1])
    W.clone().set_value(np.asarray([3], "float32"))
    W.clone().mv_sync()
    assert W.get_value().tolist() == [3]


WORKER = """
import numpy as np, multiverso as mv, polyverso
mv.init()
from multiverso.theano_ext import sharedvar, graph_library
library = graph_library.find()
W = sharedvar.mv_shared(np.full((2, 3), 10.0 + mv.worker_id(), "float32"))
b = sharedvar.mv_shared(np.zeros(3, "float32"))
print("start", W.get_value()[0, 0])
library.function([], [], updates=[(W, W + np.float32(1 + mv.worker_id()))])()
W.mv_sync()
mv.barrier()
sharedvar.sync_all_mv_shared_vars()
print("end", W.get_value()[1, 2], "device", polyverso.local_device())
mv.shutdown()
"""


def test_the_masters_value_wins_and_changes_are_summed():
    out = run_workers(3, WORKER)
    for worker in range(3):
        assert f"[w{worker}] start 10.0" in out and f"[w{worker}] end 16.0 device {worker}" in out


def test_a_script_that_imports_theano_first(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(f"""
        import sys
        import {library.__name__}
        from multiverso.theano_ext import sharedvar
        print(sys.argv[1:], __name__)
    """))
    done = subprocess.run([sys.executable, "-m", "multiverso.theano_ext", str(script), "--rate", "3"],
                          capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "['--rate', '3'] __main__", done.stderr
