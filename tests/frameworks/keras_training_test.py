"""polyverso.keras with the real Keras 3, on JAX or on the backend in KERAS_BACKEND: fit() in several processes."""

import os
import re
import subprocess
import sys
import textwrap

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["OMP_NUM_THREADS"] = "1"

import keras  # noqa: E402
import pytest  # noqa: E402
from conftest import ROOT, run_in_workers  # noqa: E402

import polyverso  # noqa: E402
import polyverso.keras as pk  # noqa: E402

pytestmark = pytest.mark.usefixtures("jax_compiles_fast")

BEGIN = """
import keras
import numpy as np
import polyverso
import polyverso.keras as pk

def data(seed, rows):
    x = np.random.default_rng(seed).normal(size=(rows, 3)).astype("float32")
    return x, x.sum(1, keepdims=True)

def network(seed=0, norm=True, policy="float32", optimizer=None, **settings):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(8, activation="tanh", dtype=policy)]
    if norm:
        layers += [keras.layers.BatchNormalization(dtype=policy), keras.layers.Dropout(0.1, dtype=policy)]
    model = keras.Sequential([keras.layers.Input((3,)), *layers, keras.layers.Dense(1, dtype=policy)])
    model.compile(optimizer or keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"], **settings)
    return model

def tell(name, values):
    print("SAME", name, [np.asarray(value, "float64").tolist() for value in values], flush=True)

def close(one, other, tolerance=1e-5):
    for mine, its in zip(one.get_weights(), other.get_weights()):
        np.testing.assert_allclose(mine, its, atol=tolerance, rtol=0)

with polyverso.init() as node:
    rank = node.worker_id
"""


def run(script, ranks=2):
    """Runs the script in all ranks. Each says the same in lines with SAME. Returns what they have said."""
    body = textwrap.indent(textwrap.dedent(script), "    ")
    said = run_in_workers(ranks, f"{BEGIN}\n{body}\n    print('done', flush=True)")
    assert said.count("done") == ranks, said
    lines = [line.partition("SAME ")[2] for line in said.splitlines() if "SAME" in line]
    assert all(lines.count(line) == ranks for line in lines), said
    return said


def test_steps_are_those_of_one_process_with_all_batches(tmp_path):
    run(f"folder = {str(tmp_path)!r}" + textwrap.dedent("""
    x, y = data(1, 64)
    halves = [x.reshape(8, 2, 4, 3)[:, part].reshape(32, 3) for part in (0, 1)], [y.reshape(8, 2, 4, 1)[:, part].reshape(32, 1) for part in (0, 1)]
    alone = network(0, norm=False)
    alone.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    for eagerly in (False, True):
        model = network(rank, norm=False, run_eagerly=eagerly)  # of which rank 0's first values count
        callback = pk.AllReduceCallback()
        model.fit(halves[0][rank], halves[1][rank], batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=[callback])
        close(model, alone)
        tell(f"weights, eagerly: {eagerly}", model.get_weights() + list(model.optimizer.variables))
        assert callback.meter.steps == 24, callback.meter
        callback.close()
        if rank == 0:  # without the others
            model.fit(halves[0][0], halves[1][0], batch_size=4, verbose=0)
    model = network(0, norm=False, optimizer=pk.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)))
    model.fit(halves[0][rank], halves[1][rank], batch_size=4, epochs=3, shuffle=False, verbose=0)
    close(model, alone)
    model.save(f"{folder}/model{rank}.keras")
    again = keras.saving.load_model(f"{folder}/model{rank}.keras")
    assert isinstance(again.optimizer, keras.optimizers.SGD) and "apply" not in vars(again.optimizer)
    """))


def test_parameters_are_averaged_every_so_many_batches_and_at_the_end():
    run("""
    parts = [data(5, 40), data(6, 24)]  # 5 and 3 batches
    alone = [network(0, norm=False, optimizer=keras.optimizers.SGD(0.05)) for _ in parts]
    for first, last in ((0, 2), (2, 4), (4, 5)):
        for model, (x, y) in zip(alone, parts):
            if len(x[first * 8 :]) > 0:
                model.fit(x[first * 8 : last * 8], y[first * 8 : last * 8], batch_size=8, shuffle=False, verbose=0)
        trained = [model.get_weights() for model, (x, _) in zip(alone, parts) if len(x[first * 8 :]) > 0]
        for model in alone:
            model.set_weights([sum(weights) / len(trained) for weights in zip(*trained)])
    model = network(rank, norm=False, optimizer=keras.optimizers.SGD(0.05))
    callback = pk.LocalSGDCallback(2)
    model.fit(*parts[rank], batch_size=8, shuffle=False, verbose=0, callbacks=[callback])
    close(model, alone[0])
    callback.close()

    model = network(0, norm=False, optimizer=keras.optimizers.SGD(0.05))
    before, own = model.get_weights(), network(0, norm=False, optimizer=keras.optimizers.SGD(0.05))
    callback = pk.ServerCallback(freq=10)
    model.fit(*parts[rank], batch_size=8, shuffle=False, verbose=0, callbacks=[callback])
    changes = []
    for x, y in parts:
        own.set_weights(before)
        own.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        changes.append([after - start for after, start in zip(own.get_weights(), before)])
    own.set_weights([start + one + other for start, one, other in zip(before, *changes)])
    close(model, own)
    callback.close()
    """)


UNEVEN = """
    x, y = data(2 + rank, 80 + 48 * rank)  # 5 and 8 batches
    for policy in policies:
        model = network(rank, policy=policy, optimizer=keras.optimizers.SGD(0.03))
        callback = callback_of()
        stop = keras.callbacks.EarlyStopping("val_loss", min_delta=1e9, patience=4)
        rate = keras.callbacks.ReduceLROnPlateau("val_loss", min_delta=1e9, patience=4, cooldown=5)
        first = model.evaluate(*data(9, 64), verbose=0)[0]
        history = model.fit(x, y, batch_size=16, epochs=9, validation_data=(x[:32], y[:32]), callbacks=[callback, stop, rate], verbose=2).history
        tell("history", history.values())
        tell("weights", model.get_weights()[:8])  # not the state of Dropout's random numbers
        assert len(history["loss"]) == 5 and float(model.optimizer.learning_rate) < 0.01, history
        last = model.evaluate(*data(9, 64), verbose=0, return_dict=True)
        assert policy != "float32" or last["loss"] < 0.8 * first, (first, last)
        mine = model.evaluate(x, y, verbose=0, return_dict=True)
        tell("average", callback.average(mine).values())
        model.fit(x, y, batch_size=16, epochs=1, callbacks=[callback], verbose=0)
        tell("after another fit", model.get_weights()[:8])
        callback.close()
"""


@pytest.mark.parametrize("how, policies", [
    ("AllReduceCallback()", ["float32", "mixed_float16", "bfloat16"]),
    ("LocalSGDCallback(3)", ["bfloat16"]),
    ("DiLoCoCallback(4, fragments=2, overlap=1, outer_momentum=0.5)", ["float32"]),
    ("ServerCallback(freq=2)", ["float32"]),
    ("ServerCallback(optimizer='sgd', learning_rate=0.05)", ["float32", "mixed_bfloat16"]),
], ids=["allreduce", "local", "diloco", "server", "optimizer"])
def test_uneven_batches_decisions_and_policies(how, policies):
    said = run(f"policies, callback_of = {policies}, lambda: pk.{how}\n" + textwrap.dedent(UNEVEN))
    assert "[w0] Epoch 1/9" in said and "[w1] Epoch" not in said


def test_everyone_prints_if_asked_and_layers_may_have_no_gradient():
    said = run("""
    shared = keras.layers.Dense(2)
    model = keras.Sequential([keras.layers.Input((3,)), shared, keras.layers.Dense(1)])
    shared.trainable = False
    model.compile("adam", "mse")
    callback = pk.AllReduceCallback(print_all=True, average_metrics=False)
    history = model.fit(*data(rank, 32), verbose=2, callbacks=[callback]).history
    tell("weights", model.get_weights())
    print("LOSS", history["loss"])
    callback.close()
    """)
    assert "[w0] 1/1 - " in said and "[w1] 1/1 - " in said
    assert len({line.partition("LOSS")[2] for line in said.splitlines() if "LOSS" in line}) == 2


def test_models_and_metrics_must_agree():
    run("""
    import pytest
    for other in ({"norm": True}, {}):
        with polyverso.Group(node) as group:
            callback = pk.LocalSGDCallback(2, group)
            model = network(**({"norm": False} if rank else {"norm": True})) if other else network()
            if other:
                with pytest.raises(polyverso.StateError, match="MV_EDISAGREE"):
                    model.fit(*data(0, 16), verbose=0, callbacks=[callback])
            else:
                with pytest.raises(polyverso.StateError, match="MV_EDISAGREE"):
                    model.fit(*data(0, 16), verbose=0, callbacks=[callback], validation_data=data(1, 16) if rank else None)
    """)


def test_a_lost_rank_is_named():
    with pytest.raises(AssertionError, match=r"rank 1 of the group is lost: worker 1: ValueError: no more data"):
        run("""
        class Failing(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if rank == 1 and batch == 2:
                    raise ValueError("no more data")
        network().fit(*data(rank, 256), batch_size=16, epochs=2, verbose=0, callbacks=[pk.AllReduceCallback(), Failing()])
        """)


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="Keras on PyTorch has one batch in an execution")
def test_several_batches_in_one_execution_count_as_several():
    """They counted as one, so that exchanges were rarer."""
    run("""
    class Counting:  # of the callback's table
        def __init__(self, table):
            self.table, self.adds = table, 0
        def add(self, *given, **named):
            self.adds += 1
            return self.table.add(*given, **named)
        def __getattr__(self, name):
            return getattr(self.table, name)

    for execution, inner, exchanges in ((1, 4, 4), (2, 4, 4), (4, 4, 4), (3, 4, 3), (4, 2, 4)):  # of 14 batches; one is at the end
        model = network(norm=False, steps_per_execution=execution)
        callback = pk.LocalSGDCallback(inner)
        model.fit(*data(rank, 14 * 4), batch_size=4, callbacks=[callback], verbose=0)
        assert callback.meter.steps == 14, callback.meter
        assert callback._strategy.meter.steps == exchanges, (execution, callback._strategy.meter)
        callback.close()
        callback = pk.ServerCallback(inner)
        begin = callback._begin
        def begin_counting(model):
            begin(model)
            callback._table = Counting(callback._table)
        callback._begin = begin_counting
        model.fit(*data(rank, 14 * 4), batch_size=4, callbacks=[callback], verbose=0)
        assert callback._table.adds == exchanges, (execution, callback._table.adds)
        callback.close()
    results = []
    for execution in (1, 2):
        model = network(norm=False, steps_per_execution=execution)
        callback = pk.DiLoCoCallback(4, fragments=2, overlap=1)
        model.fit(*data(rank, 14 * 4), batch_size=4, callbacks=[callback], verbose=0)
        results.append(callback.meter)
        callback.close()
    assert results[0] == results[1] and results[0].steps == 14, results
    """)


def test_rounding_to_16_bits_is_no_training():
    """Each worker added the difference between the servers' value and its own rounded one, in each exchange."""
    run("""
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, dtype="bfloat16")])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.set_weights([np.full((1, 1), 1 - 2.0**-8)])  # the next numbers of bfloat16 are 1 and 1 + 2**-7
    class Training(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 0 and not trained:
                trained.append(self.model.set_weights([np.ones((1, 1))]))
    trained = []
    callback = pk.ServerCallback()
    model.fit(np.ones((6, 1)), np.ones((6, 1)), batch_size=1, epochs=2, callbacks=[callback, Training()], verbose=0)
    assert callback._table.get().tolist() == [1 + 2.0**-8], callback._table.get()
    tell("weights", model.get_weights())
    callback.close()
    """)


@pytest.mark.parametrize("make", [pk.AllReduceCallback, lambda: pk.ServerCallback(optimizer="sgd")])
def test_all_models_of_a_callback_train_alone_after_its_end(make):
    """Only the last one did."""
    ones = keras.ops.ones((4, 3))
    with polyverso.init():
        callback, models = make(), []
        for _ in range(2):
            models.append(keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(3)]))
            models[-1].compile("sgd", "mse")
            models[-1].fit(ones, ones, callbacks=[callback], verbose=0)
        last = pk.AllReduceCallback()
        models[1].fit(ones, ones, callbacks=[last], verbose=0)
        callback.close()
        models[0].fit(ones, ones, verbose=0)
        models[1].fit(ones, ones, callbacks=[last], verbose=0)  # still with the other callback
        assert last.meter.steps == 2
        last.close()


@pytest.mark.parametrize("make, error, text", [
    (lambda: pk.ServerCallback(freq=0), ValueError, "at least 1"),
    (lambda: pk.ServerCallback(learning_rate=0.1), TypeError, "learning_rate: only with an optimizer"),
    (lambda: pk.ServerCallback(compression="int8"), TypeError, "compression: only with an optimizer"),
    (lambda: pk.ServerCallback(freq=2, optimizer="sgd"), ValueError, "in every step"),
    (lambda: pk.ServerCallback(optimizer="adm"), polyverso.Error, "adam"),
    (lambda: pk.LocalSGDCallback(0), ValueError, "at least 1"),
    (lambda: pk.DiLoCoCallback(2, outer_moment=1), polyverso.Error, "outer_moment"),
])
def test_what_is_refused(make, error, text):
    with polyverso.init(), pytest.raises(error, match=text):
        make()


def test_the_servers_step_for_each_batch_even_if_the_optimizer_accumulates():
    """Keras's optimizer.iterations is then no variable."""
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.5, gradient_accumulation_steps=2), "mse")
    with polyverso.init():
        callback = pk.ServerCallback(optimizer="sgd", learning_rate=0.5)
        model.fit(keras.ops.ones((1, 3)), keras.ops.ones((1, 1)), verbose=0, callbacks=[callback])
        assert model.get_weights()[0].tolist() == [[1]] * 3  # the gradient is -2, which its own optimizer would not have applied yet
        callback.close()


@pytest.mark.parametrize("make", [
    pk.AllReduceCallback, lambda: pk.LocalSGDCallback(2), pk.ServerCallback, lambda: pk.ServerCallback(optimizer="sgd")
])
def test_closing_twice_is_closing_once(make):
    """The second one shut down the program's own node."""
    with polyverso.init() as node:
        callback = make()
        callback.close()
        callback.close()
        node.barrier()


def test_without_a_node():
    with pytest.raises(polyverso.StateError, match="init"):
        pk.AllReduceCallback()


def test_the_servers_do_not_know_the_scale_of_the_loss():
    with polyverso.init():
        callback = pk.ServerCallback(optimizer="sgd")
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)], )
        model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), "mse")
        with pytest.raises(ValueError, match="mixed_bfloat16"):
            callback.set_model(model)
        callback.close()


def test_a_policy_of_float16_is_scaled_before_the_average():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with polyverso.init():
            assert isinstance(pk.DistributedOptimizer("adam"), keras.optimizers.LossScaleOptimizer)
    finally:
        keras.config.set_dtype_policy("float32")


def test_the_example_trains():
    command = ["polyverso", "run", "-n", "2", "--", sys.executable, str(ROOT / "examples" / "keras" / "train.py"), "--how", "diloco", "--epochs", "3"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True).stdout
    losses = [float(loss) for loss in re.findall(r'"loss": ([0-9.]+)', said)]
    assert len(losses) == 3 and losses[2] < losses[0] / 2, said
