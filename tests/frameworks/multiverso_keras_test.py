"""multiverso.theano_ext.keras_ext with the real Keras 3, on JAX or on the backend in KERAS_BACKEND."""

import os
import subprocess
import sys

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ["JAX_PLATFORMS"] = "cpu"

import keras  # noqa: E402
import multiverso as mv  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from conftest import run_workers  # noqa: E402
from multiverso.theano_ext.keras_ext.callbacks import MVCallback  # noqa: E402
from multiverso.theano_ext.keras_ext.param_manager import KerasParamManager  # noqa: E402
from multiverso.theano_ext.param_manager import MVModelParamManager  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("jax_compiles_fast"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword"),
]


@pytest.fixture(autouse=True)
def cluster():
    mv.init()
    yield
    mv.shutdown()


def build():
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def data(rows=64):
    x = np.random.default_rng(1).normal(size=(rows, 3)).astype("float32")
    return x, x @ np.array([[1.0], [2.0], [3.0]], "float32")


def test_training_learns_with_the_callback():
    keras.utils.set_random_seed(1)  # one of seven random beginnings is not good enough for the limit below
    model, (x, y) = build(), data()
    losses = model.fit(x, y, batch_size=8, epochs=20, verbose=0, callbacks=[MVCallback(model, freq=1)]).history["loss"]
    assert losses[-1] < losses[0] / 100


@pytest.mark.parametrize("freq, execution, wanted", [(1, 1, 8), (3, 1, 2), (8, 1, 1), (9, 1, 0), (4, 2, 2), (3, 2, 2), (1, 4, 2), (8, 4, 1)])
def test_it_synchronises_every_freq_batches(freq, execution, wanted):
    if execution > 1 and keras.backend.backend() == "torch":
        pytest.skip("Keras on PyTorch has one batch in an execution")
    model, (x, y) = build(), data()
    model.compile("sgd", "mse", steps_per_execution=execution)
    callback, syncs = MVCallback(model, freq=freq), []
    original = callback.kpm.sync_all_param
    callback.kpm.sync_all_param = lambda: (syncs.append(1), original())
    model.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[callback])
    assert len(syncs) == wanted


def test_the_same_as_without_it_alone():
    x, y = data()
    one, other = build(), build()
    other.set_weights(one.get_weights())
    one.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    other.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=[MVCallback(other)])
    for a, b in zip(one.get_weights(), other.get_weights()):
        assert np.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("freq", [0, -1, 0.5])
def test_a_frequency_below_one_is_refused(freq):
    with pytest.raises(ValueError, match="at least 1"):
        MVCallback(build(), freq=freq)


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="has no weights"):
        MVCallback(keras.Sequential([keras.layers.Dense(1)]))
    callback = MVCallback(build())
    with pytest.raises(ValueError, match="another model"):
        build().fit(*data(), verbose=0, callbacks=[callback])


def test_the_base_class_needs_no_framework():
    class Arrays(MVModelParamManager):
        def get_all_param_values(self):
            return self.model

        def set_all_param_values(self, params):
            self.model[:] = params

    model = [np.ones((2, 2)), np.zeros(3, "float32"), np.float32(7)]
    manager = Arrays(model)
    model[0] = model[0] + 1
    manager.sync_all_param()
    assert model[0].tolist() == [[2, 2], [2, 2]] and model[0].dtype == np.float64 and model[2] == 7
    with pytest.raises(NotImplementedError, match="get_all_param_values"):
        MVModelParamManager(None)
    code = "import sys, multiverso.theano_ext.param_manager; print([n for n in ('theano', 'lasagne', 'keras') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


ROUNDED = """
import numpy as np, multiverso as mv
from multiverso.theano_ext.param_manager import MVModelParamManager
class Manager(MVModelParamManager):
    def get_all_param_values(self):
        return self.model
    def set_all_param_values(self, params):
        self.model[:] = params
mv.init()
manager = Manager([np.array([2047], "float16"), np.zeros(2, "float32")])  # float16 has 2048 and 2050, but not 2049
manager.model[0] += np.float16(1)
for _ in range(3):
    manager.sync_all_param()
    mv.barrier()
print("values", manager.all_param_list.tolist(), manager.model[0].dtype, manager.model[0].tolist())
mv.shutdown()
"""


def test_rounding_to_16_bits_is_no_training():
    """Each worker added the difference between the table's value and its own rounded one, in each sync."""
    assert run_workers(2, ROUNDED).count("values [2049.0, 0.0, 0.0] float16 [2048.0]") == 2


WORKER = """
import os
os.environ["KERAS_BACKEND"] = %r
os.environ["JAX_PLATFORMS"] = "cpu"
import keras, numpy as np, multiverso as mv
from multiverso.theano_ext.keras_ext.callbacks import MVCallback
from multiverso.theano_ext.keras_ext.param_manager import KerasParamManager
mv.init()
keras.utils.set_random_seed(mv.worker_id())
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.random.default_rng(mv.worker_id()).normal(size=(64, 3)).astype("float32")
y = x @ np.array([[1.0], [2.0], [3.0]], "float32")
manager = KerasParamManager(model)
print("start", float(model.get_weights()[0][0, 0]))
model.fit(x, y, batch_size=8, epochs=10, verbose=0, callbacks=[MVCallback(model, freq=2)])
mv.barrier()
manager.sync_all_param()
print("weights", [round(float(w)) for w in model.get_weights()[0].ravel()])
mv.shutdown()
"""


def test_two_workers_train_one_model():
    out = run_workers(2, WORKER % os.environ["KERAS_BACKEND"])
    starts = {line.split("] ")[1] for line in out.splitlines() if "start" in line}
    assert len(starts) == 1, out
