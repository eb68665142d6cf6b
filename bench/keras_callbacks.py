"""The cost of polyverso.keras's and multiverso's callbacks: the time of an epoch with each, and without any.

    source build/activate
    polyverso run -n 2 -- python3 bench/keras_callbacks.py              # KERAS_BACKEND=jax by default
    polyverso run -n 2 -- python3 bench/keras_callbacks.py --inputs 784 --hidden 512 512 --batch 128   # the MLP of the examples

All ranks train at the same time, in each way in turns: epochs with a callback and the ones without stand beside each
other, so that other work on the machine meets both alike. Prints the medians, and the median of the pairs' ratios. The
first epoch in each way is not counted: it compiles.
"""

import argparse
import gzip
import os
import pathlib
import statistics
import time

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import keras  # noqa: E402
import multiverso as mv  # noqa: E402
import numpy as np  # noqa: E402
from multiverso.theano_ext.keras_ext.callbacks import MVCallback  # noqa: E402

import polyverso.keras as pk  # noqa: E402

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.csv.gz"
WAYS = {
    "AllReduceCallback()": lambda model: pk.AllReduceCallback(),
    "LocalSGDCallback(10)": lambda model: pk.LocalSGDCallback(10),
    "DiLoCoCallback(50)": lambda model: pk.DiLoCoCallback(50),
    "ServerCallback(freq=1)": lambda model: pk.ServerCallback(freq=1),
    "ServerCallback(freq=10)": lambda model: pk.ServerCallback(freq=10),
    "ServerCallback(optimizer='sgd')": lambda model: pk.ServerCallback(optimizer="sgd", learning_rate=0.05),
    "MVCallback(freq=1)": lambda model: MVCallback(model, freq=1),
    "MVCallback(freq=10)": lambda model: MVCallback(model, freq=10),
}


def build(inputs, hidden):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(units, activation="relu") for units in hidden]
    model = keras.Sequential([keras.layers.Input((inputs,)), *layers, keras.layers.Dense(10, activation="softmax")])
    model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=64, help="the images' 64 pixels are repeated (default: %(default)s)")
    parser.add_argument("--hidden", type=int, nargs="+", default=[64], help="units of the hidden layers (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=10, help="times that the images are in an epoch (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=9, help="pairs of epochs for each callback (default: %(default)s)")
    arguments = parser.parse_args()
    mv.init()
    with gzip.open(DATA, "rt") as file:
        numbers = np.loadtxt(file, delimiter=",", dtype="float32")
    numbers = np.tile(numbers, (arguments.repeats, 1))[mv.worker_id() :: mv.workers_num()]
    x, y = numbers[:, :64] / 16, numbers[:, 64].astype("int32")
    x = np.tile(x, -(-arguments.inputs // 64))[:, : arguments.inputs]

    def seconds(model, callbacks):
        mv.barrier()
        begun = time.perf_counter()
        model.fit(x, y, batch_size=arguments.batch, epochs=1, shuffle=False, verbose=0, callbacks=callbacks)
        return time.perf_counter() - begun

    if mv.is_master_worker():
        steps = -(-len(y) // arguments.batch)
        print(f"{keras.backend.backend()}, {mv.workers_num()} ranks, {'-'.join(map(str, [arguments.inputs, *arguments.hidden, 10]))}, {steps} steps of {arguments.batch}")
        print(f"{'':32} {'alone ms':>9} {'with ms':>9} {'ratio':>6}")
    for name, make in WAYS.items():
        alone, together = (build(arguments.inputs, arguments.hidden) for _ in range(2))
        callback = make(together)
        pairs = [(seconds(alone, []), seconds(together, [callback])) for _ in range(1 + arguments.epochs)][1:]
        if hasattr(callback, "close"):
            callback.close()
        if mv.is_master_worker():
            before, after = (1000 * statistics.median(side) for side in zip(*pairs))
            print(f"{name:32} {before:9.1f} {after:9.1f} {statistics.median(b / a for a, b in pairs):6.2f}", flush=True)
    mv.shutdown()


main()
