"""Trains a network on the handwritten digits of data/ with Keras 3, on several ranks, in one of several ways.

    python3 examples/keras/train.py
    polyverso run -n 2 -- python3 examples/keras/train.py --how allreduce
    KERAS_BACKEND=torch polyverso run -n 2 -- python3 examples/keras/train.py --how diloco

Every rank has its own part of the images. Rank 0 prints one line of JSON for every epoch of 50 steps.
"""

import argparse
import gzip
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import keras  # noqa: E402
import numpy as np  # noqa: E402

import polyverso  # noqa: E402
import polyverso.keras as pk  # noqa: E402

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits.csv.gz"
STEPS = 50  # of an epoch
WAYS: dict[str, Callable[[], Any]] = {
    "allreduce": lambda: pk.AllReduceCallback(),
    "local": lambda: pk.LocalSGDCallback(inner_steps=10),
    # Momentum 0.9, the default, is for more exchanges than these 20.
    "diloco": lambda: pk.DiLoCoCallback(inner_steps=50, outer_momentum=0.5),
    "server": lambda: pk.ServerCallback(freq=10),
    "optimizer": lambda: pk.ServerCallback(optimizer="sgd", learning_rate=0.05),
}


def images() -> list[tuple[np.ndarray, np.ndarray]]:
    """(inputs, labels) for training, then for testing: every fourth image."""
    numbers = np.loadtxt(gzip.open(DATA, "rt"), delimiter=",", dtype="float32")
    test = np.arange(len(numbers)) % 4 == 3
    return [(numbers[part, :64] / 16, numbers[part, 64].astype("int32")) for part in (~test, test)]


def batches(inputs: np.ndarray, labels: np.ndarray, size: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches without end, in random order."""
    random = np.random.default_rng(seed)
    while True:
        chosen = random.integers(0, len(labels), size)
        yield inputs[chosen], labels[chosen]


class Report(keras.callbacks.Callback):
    def __init__(self, node: polyverso.Node, exchange: Any) -> None:
        super().__init__()
        self.node, self.exchange = node, exchange

    def on_train_begin(self, logs: Any = None) -> None:
        self.begun = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        meter = getattr(self.exchange, "meter", None)
        report = {"step": STEPS * (epoch + 1), "loss": round(logs["val_loss"], 5), "error": round(1 - logs["val_accuracy"], 4),
                  "seconds": round(time.perf_counter() - self.begun, 3), "bytes": meter.payload_bytes if meter else None}
        if self.node.worker_id == 0:
            print(json.dumps(report), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--how", choices=WAYS, default="allreduce", help="what the ranks exchange (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=128, help="units of each of two layers (default: %(default)s)")
    arguments = parser.parse_args()

    (inputs, labels), test = images()
    with polyverso.init() as node:
        rank, ranks = node.worker_id, node.num_workers
        keras.utils.set_random_seed(rank)  # rank 0's first values count
        model = keras.Sequential([
            keras.layers.Input((64,)),
            keras.layers.Dense(arguments.hidden, activation="relu"),
            keras.layers.Dense(arguments.hidden, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ])
        model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
        exchange = WAYS[arguments.how]()
        model.fit(batches(inputs[rank::ranks], labels[rank::ranks], 32, rank), steps_per_epoch=STEPS, epochs=arguments.epochs, shuffle=False,
                  validation_data=test, verbose=0, callbacks=[exchange, Report(node, exchange)])
        exchange.close()


main()
