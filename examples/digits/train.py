"""Softmax regression on handwritten digits: one worker, in Python. train.pl and train.lua are equivalent.

    polyverso run -n 3 -- python3 examples/digits/train.py

A single worker trains on all images, each of n workers on every n-th one. All share one table of 65 x 10 weights.
"""

import argparse
import gzip
import pathlib
import time

import numpy as np
import polyverso

PIXELS, DIGITS = 64, 10
DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits.csv.gz"


def read_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns (inputs, labels) for training, then for testing. An input is 64 pixels of 0 .. 1 and a constant 1."""
    with gzip.open(DATA, "rt") as file:
        numbers = np.loadtxt(file, delimiter=",")
    inputs = np.hstack([numbers[:, :PIXELS] / 16, np.ones((len(numbers), 1))])
    labels = numbers[:, PIXELS].astype(int)
    test = np.arange(len(numbers)) % 4 == 3
    return inputs[~test], labels[~test], inputs[test], labels[test]


def probabilities(weights: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    scores = inputs @ weights
    powers: np.ndarray = np.exp(scores - scores.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def gradient(weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The gradient of the summed cross entropy."""
    errors = probabilities(weights, inputs)
    errors[np.arange(len(labels)), labels] -= 1
    return np.asarray(inputs.T @ errors)


def loss(weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(probabilities(weights, inputs)[np.arange(len(labels)), labels]).mean())


def accuracy(weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> float:
    return float(((inputs @ weights).argmax(axis=1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--rate", type=float, default=2.0, help="learning rate")
    parser.add_argument("--report", type=int, default=5, help="epochs between progress lines of worker 0")
    parser.add_argument("--save", type=pathlib.Path, help="folder for the final weights of this worker")
    options = parser.parse_args()

    train_inputs, train_labels, test_inputs, test_labels = read_digits()
    node = polyverso.init()  # sync or async, as the launcher's options say
    table = node.matrix(PIXELS + 1, DIGITS)
    inputs = train_inputs[node.worker_id :: node.num_workers]
    labels = train_labels[node.worker_id :: node.num_workers]
    step = -options.rate / len(train_labels)

    node.barrier()
    begun = time.monotonic()
    for epoch in range(options.epochs):
        weights = table.get()
        if node.is_master and epoch % options.report == 0:
            print(
                f"epoch {epoch} loss {loss(weights, train_inputs, train_labels):.4f}"
                f" accuracy {accuracy(weights, test_inputs, test_labels):.4f} seconds {time.monotonic() - begun:.3f}",
                flush=True,
            )
        if epoch % options.report == 0:
            node.report("loss", loss(weights, inputs, labels))  # of this worker's images: for `polyverso dashboard`
        table.add(step * gradient(weights, inputs, labels), wait=False)

    node.barrier()  # afterwards the table has all adds of all workers
    weights = table.get()
    if options.save:
        # Nine digits distinguish any two float32 values.
        (options.save / f"weights-{node.worker_id}.txt").write_text("".join(f"{value:.9g}\n" for value in weights.ravel()))
    if node.is_master:
        # Only one worker reads here. A get would count in the rounds of sync mode; a peek does not.
        final = table.peek()
        print(f"final accuracy {accuracy(final, test_inputs, test_labels):.4f} seconds {time.monotonic() - begun:.3f}", flush=True)
    node.shutdown()


if __name__ == "__main__":
    main()
