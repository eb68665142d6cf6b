"""A small neural network on handwritten digits, data-parallel through a key-value store: one worker, in Python.
train.pl and train.lua are equivalent; all three can share one store.

    polyverso run -n 3 -- python3 examples/kvstore/train.py [--type dist_async] [--epochs 30] [--batch 50] [--rate 0.005]
        [--threshold 2]

The network is 64 pixels, 32 hidden units (tanh), 10 digits (softmax): keys w1, b1, w2, b2. Each of n workers takes
every n-th image. A step pushes the gradient summed over a batch; the store applies Adam. Gradients are sent as two bits
per element, unless --threshold is 0.
"""

import argparse
import gzip
import pathlib
import time
from collections.abc import Sequence

import numpy as np
import polyverso
from polyverso import Tensor, kvstore, optimizer

PIXELS, HIDDEN, DIGITS = 64, 32, 10
DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits.csv.gz"
KEYS = ["w1", "b1", "w2", "b2"]


def read_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns (inputs, labels) for training, then for testing: every fourth image."""
    with gzip.open(DATA, "rt") as file:
        numbers = np.loadtxt(file, delimiter=",", dtype=np.float32)
    inputs, labels = numbers[:, :PIXELS] / 16, numbers[:, PIXELS].astype(int)
    test = np.arange(len(numbers)) % 4 == 3
    return inputs[~test], labels[~test], inputs[test], labels[test]


def first_values() -> list[np.ndarray]:
    """Initial values, the same in all languages. The store takes those of worker 0."""
    w1 = Tensor.normal((PIXELS, HIDDEN), 1, 0, 0.1).numpy()
    w2 = Tensor.normal((HIDDEN, DIGITS), 2, 0, 0.1).numpy()
    return [w1, np.zeros(HIDDEN, np.float32), w2, np.zeros(DIGITS, np.float32)]


def forward(values: Sequence[np.ndarray], inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    w1, b1, w2, b2 = values
    hidden = np.tanh(inputs @ w1 + b1)
    scores = hidden @ w2 + b2
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def gradients(values: Sequence[np.ndarray], inputs: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    """The gradients of the summed cross entropy, by key."""
    hidden, errors = forward(values, inputs)
    errors[np.arange(len(labels)), labels] -= 1
    below = errors @ values[2].T * (1 - hidden * hidden)
    return [inputs.T @ below, below.sum(axis=0), hidden.T @ errors, errors.sum(axis=0)]


def loss_and_accuracy(values: Sequence[np.ndarray], train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    chances = forward(values, train[0])[1][np.arange(len(train[1])), train[1]]
    right = forward(values, test[0])[1].argmax(axis=1) == test[1]
    return float(-np.log(chances).mean()), float(right.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", default="dist_sync", help="type of the store")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=50, help="batch size of each worker")
    parser.add_argument("--rate", type=float, default=0.005, help="learning rate")
    parser.add_argument("--threshold", type=float, default=2, help="threshold of the 2-bit gradient compression; 0 = no compression")
    options = parser.parse_args()

    train_inputs, train_labels, test_inputs, test_labels = read_digits()
    with polyverso.init():
        kv = kvstore.create(options.type)
        values = first_values()
        kv.broadcast(KEYS, values, out=values)
        if options.threshold:
            kv.set_gradient_compression({"type": "2bit", "threshold": options.threshold})
        if kv.rank == 0:
            scale = 1 / (options.batch * kv.num_workers)
            kv.set_optimizer(optimizer.Adam(learning_rate=options.rate, rescale_grad=scale))
        kv.barrier()

        inputs, labels = train_inputs[kv.rank :: kv.num_workers], train_labels[kv.rank :: kv.num_workers]
        steps = len(train_labels) // kv.num_workers // options.batch  # the same number on all workers
        begun = time.monotonic()
        for epoch in range(options.epochs):
            for first in range(0, steps * options.batch, options.batch):
                batch = slice(first, first + options.batch)
                kv.pushpull(KEYS, gradients(values, inputs[batch], labels[batch]), out=values)
            if kv.rank == 0:
                loss, accuracy = loss_and_accuracy(values, (train_inputs, train_labels), (test_inputs, test_labels))
                seconds = time.monotonic() - begun
                print(f"epoch {epoch} loss {loss:.4f} accuracy {accuracy:.4f} seconds {seconds:.3f}", flush=True)
        kv.barrier()
        kv.pull(KEYS, out=values)
        if kv.rank == 0:
            loss, accuracy = loss_and_accuracy(values, (train_inputs, train_labels), (test_inputs, test_labels))
            print(f"final accuracy {accuracy:.4f} seconds {time.monotonic() - begun:.3f}", flush=True)


if __name__ == "__main__":
    main()
