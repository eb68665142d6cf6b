"""Trains a network on the handwritten digits of data/ with JAX alone: the step, with the average over all ranks, is one
compiled function.

    python3 examples/jax/train.py
    polyverso run -n 2 -- python3 examples/jax/train.py

All ranks' batches together are the same images in every run with a number of ranks that divides 64, so the losses are
the same. Rank 0 prints one line of JSON for every 100th step.
"""

import argparse
import gzip
import json
import os
import pathlib
import time
from collections.abc import Sequence

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import polyverso  # noqa: E402
import polyverso.jax as pj  # noqa: E402

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits.csv.gz"
BATCH = 64  # images of all ranks
Layers = list[dict[str, jax.Array]]  # weights and biases


def images() -> list[tuple[np.ndarray, np.ndarray]]:
    """(inputs, labels) for training, then for testing: every fourth image."""
    numbers = np.loadtxt(gzip.open(DATA, "rt"), delimiter=",", dtype="float32")
    test = np.arange(len(numbers)) % 4 == 3
    return [(numbers[part, :64] / 16, numbers[part, 64].astype("int32")) for part in (~test, test)]


def network(key: jax.Array, sizes: Sequence[int]) -> Layers:
    """Weights and biases of each layer."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [{"w": jax.random.normal(key, (before, after)) * (2 / before) ** 0.5, "b": jnp.zeros(after)}
            for key, before, after in zip(keys, sizes, sizes[1:])]


def outputs(layers: Layers, inputs: np.ndarray) -> jax.Array:
    for layer in layers[:-1]:
        inputs = jax.nn.relu(inputs @ layer["w"] + layer["b"])
    return inputs @ layers[-1]["w"] + layers[-1]["b"]


def loss_of(layers: Layers, inputs: np.ndarray, labels: np.ndarray) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(outputs(layers, inputs)), labels[:, None], 1).mean()


@jax.jit
def step(layers: Layers, inputs: np.ndarray, labels: np.ndarray) -> tuple[jax.Array, Layers]:
    loss, gradients = pj.pmean(jax.value_and_grad(loss_of)(layers, inputs, labels))  # one operation
    return loss, jax.tree.map(lambda value, gradient: value - 0.05 * gradient, layers, gradients)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--hidden", type=int, default=128, help="units of each of two layers (default: %(default)s)")
    arguments = parser.parse_args()
    (inputs, labels), test = images()
    with polyverso.init() as node:
        rank, ranks = node.worker_id, node.num_workers
        layers = pj.broadcast(network(jax.random.key(rank), [64, arguments.hidden, arguments.hidden, 10]))
        random = np.random.default_rng(0)
        begun = time.perf_counter()
        for number in range(1, arguments.steps + 1):
            batch = random.integers(0, len(labels), BATCH)[rank::ranks]
            loss, layers = step(layers, inputs[batch], labels[batch])
            if rank == 0 and (number % 100 == 0 or number == arguments.steps):
                error = float((outputs(layers, test[0]).argmax(1) != test[1]).mean())
                print(json.dumps({"step": number, "training": round(float(loss), 5), "loss": round(float(loss_of(layers, *test)), 5),
                                  "error": round(error, 4), "seconds": round(time.perf_counter() - begun, 3)}), flush=True)
        jax.block_until_ready(layers)


main()
