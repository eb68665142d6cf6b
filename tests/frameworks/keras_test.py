"""Keras's adapter and callback, on JAX or on the backend in KERAS_BACKEND."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ["JAX_PLATFORMS"] = "cpu"

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from conftest import introduce, lone  # noqa: E402

from polyverso import gossip  # noqa: E402
from polyverso.gossip.keras import GossipCallback, KerasAdapter  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("jax_compiles_fast"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword"),  # from Keras to JAX
]


def network(value=None, dtype="float32"):
    initial = "glorot_uniform" if value is None else keras.initializers.Constant(value)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4, kernel_initializer=initial, dtype=dtype),
                              keras.layers.BatchNormalization(gamma_initializer=initial, beta_initializer=initial),
                              keras.layers.Dropout(0.5)])
    if value is not None:
        model.layers[0].bias.assign(np.full(4, value))
    return model


def all_are(model, value):
    return all((keras.ops.convert_to_numpy(weight) == value).all() for weight in model.trainable_variables)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_weights_are_averaged(dtype):
    models = [network(1.0, dtype), network(3.0, dtype)]
    one, other = (KerasAdapter(model, name, lone(name)) for model, name in zip(models, "ab"))
    introduce(one, other)
    other.update_send(0.5)
    one.update_send(0.5)
    assert one.update_wait(0.5) == 0.5
    assert all_are(models[0], 2) and all_are(models[1], 3)
    one.close()
    other.close()


def test_buffers_too():
    models = [network(1.0), network(3.0)]
    statistics = [model.layers[1].moving_mean for model in models]
    statistics[1].assign(np.full(4, 4.0))
    seeds = [keras.ops.convert_to_numpy(models[0].layers[2].seed_generator.state).copy()]
    one, other = (KerasAdapter(model, name, lone(name), buffers=True) for model, name in zip(models, "ab"))
    introduce(one, other)
    other.update_send(0.5)
    one.update_send(0.5)
    assert one.update_wait(0.5) == 0.5
    assert all_are(models[0], 2)
    assert (keras.ops.convert_to_numpy(statistics[0]) == 2).all()
    assert (keras.ops.convert_to_numpy(models[0].layers[2].seed_generator.state) == seeds[0]).all()
    one.close()
    other.close()


@pytest.mark.parametrize("settings, factor", [
    ({"constant": {"value": 0.25}}, 0.25), ({"interpolation": "clock"}, 2 / 3), ({"interpolation": "loss"}, 0.2),
])
def test_the_methods_and_a_node_of_numpy(settings, factor):
    model, array = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, use_bias=False)]), np.ones((3, 2), np.float32)
    before = keras.ops.convert_to_numpy(model.trainable_variables[0]).copy()
    one, other = KerasAdapter(model, "a", lone("a", **settings)), gossip.ArrayAdapter([array], "b", lone("b"))
    introduce(one, other)
    for _ in range(2):
        other.update_send(1.6)
    one.update_send(0.4)
    assert one.update_wait(0.4) == pytest.approx(factor)
    assert np.allclose(keras.ops.convert_to_numpy(model.trainable_variables[0]), (1 - factor) * before + factor * array, atol=1e-6)
    one.close()
    other.close()


def test_fitting_with_the_callback():
    """A peer has the solution, and the optimizer learns nothing: the model's final values come from the peer."""
    random = np.random.default_rng(1)
    inputs = random.normal(size=(512, 3)).astype(np.float32)
    solution = np.array([[1.0], [-2.0], [3.0]], np.float32)
    peer = gossip.ArrayAdapter([solution, np.zeros(1, np.float32)], "solved", lone("solved"))
    peer.update_send(0.1)
    port = int(peer.gossip.state["address"].rsplit(":", 1)[1])

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(learning_rate=0.0), loss="mse")
    config = lone("own")
    config["nodes"].append({"name": "solved", "host": "127.0.0.1", "port": port})
    callback = GossipCallback("own", config)
    first = model.fit(inputs, inputs @ solution, epochs=1, batch_size=32, verbose=0, callbacks=[callback])
    assert callback.adapter.gossip.state["clock"] > 0 and callback.adapter.gossip.state["averaged"] == 15  # all except the first batch
    assert callback.adapter.gossip.state["loss"] > 0
    second = model.fit(inputs, inputs @ solution, epochs=1, batch_size=32, verbose=0, callbacks=[callback])
    assert callback.adapter.gossip.state["averaged"] == 31  # the node is the same
    assert second.history["loss"][0] < 1e-3 * first.history["loss"][0]
    assert np.allclose(model.get_weights()[0], solution, atol=1e-3)
    callback.close()
    peer.close()


def test_two_models_that_are_fitted_side_by_side_come_together():
    """Two models train in turns, epoch by epoch, each on its own half: gossip brings them closer together."""
    random = np.random.default_rng(2)
    inputs = random.normal(size=(2, 256, 3)).astype(np.float32)
    targets = np.stack([inputs[0].sum(1), -inputs[1].sum(1)])[..., None]  # the two halves contradict each other

    def distance(together):
        models, callbacks = [], []
        for name in ("a", "b"):
            keras.utils.set_random_seed(3)
            models.append(keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)]))
            models[-1].compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
            callbacks.append(GossipCallback(name, lone(name)))
        for epoch in range(4):
            for place, (model, callback) in enumerate(zip(models, callbacks)):
                model.fit(inputs[place], targets[place], batch_size=64, verbose=0, callbacks=[callback] if together else [])
            if together and epoch == 0:
                introduce(*(callback.adapter for callback in callbacks))
        for callback in callbacks:
            callback.close()
        one, other = (model.get_weights()[0] for model in models)
        return np.abs(one - other).max()

    assert distance(together=True) < 0.7 * distance(together=False)
