"""A larger model on the same digits: a network of two layers, trained by the server's optimizer on shifted images. Here a
step is long enough that a second worker pays: demo.py measures that.

    python3 examples/digits/network.py
    polyverso run -n 2 -- python3 examples/digits/network.py

Each of n workers computes the gradient of every n-th image of a batch. The table sums the workers' gradients and makes
one step of them all, so any number of workers makes the same steps, except for the order in which floats are added.
"""

import argparse
import time

import numpy as np
import polyverso
from train import DIGITS, PIXELS, read_digits

SHIFTS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]


def shifted(images: np.ndarray) -> np.ndarray:
    """Each image, and its eight copies that are moved by one pixel: nine times as many rows."""
    padded = np.pad(images[:, :PIXELS].reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    moved = [padded[:, 1 + down : 9 + down, 1 + right : 9 + right].reshape(-1, PIXELS) for down, right in SHIFTS]
    return with_constant(np.concatenate(moved))


def with_constant(inputs: np.ndarray) -> np.ndarray:
    return np.hstack([inputs, np.ones((len(inputs), 1), np.float32)])


class Network:
    """65 inputs, `hidden` rectified units, 10 scores. All its weights are one array of float32, as the table has them."""

    def __init__(self, hidden: int) -> None:
        self.shapes = [(PIXELS + 1, hidden), (hidden + 1, DIGITS)]
        self.split_at = (PIXELS + 1) * hidden
        self.size = self.split_at + (hidden + 1) * DIGITS

    def initial(self) -> np.ndarray:
        generator = np.random.default_rng(1)
        layers = [generator.standard_normal(shape) / np.sqrt(shape[0] / 2) for shape in self.shapes]
        return np.concatenate([layer.ravel() for layer in layers]).astype(np.float32)

    def layers(self, weights: np.ndarray) -> list[np.ndarray]:
        parts = weights[: self.split_at], weights[self.split_at :]
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes)]

    def forward(self, weights: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rectified units, and the probabilities of the digits."""
        first, second = self.layers(weights)
        units = np.maximum(inputs @ first, 0)
        scores = units @ second[:-1] + second[-1]
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return units, scores / scores.sum(axis=1, keepdims=True)

    def gradient(self, weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The gradient of the summed cross entropy."""
        second = self.layers(weights)[1]
        units, errors = self.forward(weights, inputs)
        errors[np.arange(len(labels)), labels] -= 1
        back = (errors @ second[:-1].T) * (units > 0)
        return np.concatenate([(inputs.T @ back).ravel(), (units.T @ errors).ravel(), errors.sum(axis=0)])

    def loss(self, weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> float:
        probabilities = self.forward(weights, inputs)[1]
        return float(-np.log(probabilities[np.arange(len(labels)), labels]).mean())

    def accuracy(self, weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> float:
        return float((self.forward(weights, inputs)[1].argmax(axis=1) == labels).mean())


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Shifted images for training, in an order that is the same everywhere, and the images for testing as they are."""
    train_inputs, train_labels, test_inputs, test_labels = read_digits()
    order = np.random.default_rng(0).permutation(len(train_labels) * len(SHIFTS))
    inputs = shifted(train_inputs.astype(np.float32))[order]
    return inputs, np.tile(train_labels, len(SHIFTS))[order], test_inputs.astype(np.float32), test_labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--hidden", type=int, default=512, help="units between inputs and scores")
    parser.add_argument("--batch", type=int, default=6066, help="images of a step, of all workers together")
    parser.add_argument("--report", type=int, default=10, help="steps between points of the curve")
    options = parser.parse_args()

    inputs, labels, test_inputs, test_labels = data()
    network = Network(options.hidden)
    node = polyverso.init()
    # merge: the i-th adds of all workers are one gradient, which goes through the optimizer once.
    updater = f"momentum rate={0.2 / options.batch} momentum=0.9"
    table = node.array(network.size, init=network.initial(), updater=updater, merge=True)

    node.barrier()
    begun, begun_cpu = time.monotonic(), time.process_time()
    curve = []  # (step, seconds, weights): the losses are computed afterwards, so that they cost no time here
    for step in range(options.steps):
        weights = table.get()
        if node.is_master and step % options.report == 0:
            curve.append((step, time.monotonic() - begun, weights))
        first = step * options.batch % (len(labels) - options.batch + 1) + node.worker_id
        mine = slice(first, first - node.worker_id + options.batch, node.num_workers)
        table.add(network.gradient(weights, inputs[mine], labels[mine]), wait=False)
    node.barrier()  # afterwards the table has all adds of all workers
    seconds, cpu = time.monotonic() - begun, time.process_time() - begun_cpu

    print(f"worker {node.worker_id} cpu {cpu:.3f}", flush=True)
    if node.is_master:
        final = table.peek()
        for step, passed, weights in [*curve, (options.steps, seconds, final)]:
            print(f"step {step} loss {network.loss(weights, inputs, labels):.6f} seconds {passed:.3f}")
        print(f"final accuracy {network.accuracy(final, test_inputs, test_labels):.4f} seconds {seconds:.3f}", flush=True)
    node.shutdown()


if __name__ == "__main__":
    main()
