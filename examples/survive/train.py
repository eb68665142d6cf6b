"""A worker of the demo, in Python: takes steps of softmax regression as it is told. train.pl and train.lua are equivalent.

Each line of standard input is the number of a step. The worker gets the weights, computes the gradient over that step's batch of
images, adds it to the table all share, and prints the number once the servers have acknowledged the add. The end of the input is
the end. training.py starts these programs.

    train.py PLACE     its column among the counters, 0 ..
"""

import gzip
import pathlib
import sys

import numpy as np
import polyverso

PIXELS, DIGITS, PLACES, BATCH, RATE = 64, 10, 4, 16, 0.02
DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits.csv.gz"


def read_images() -> tuple[np.ndarray, np.ndarray]:
    """The inputs, 64 pixels of 0 .. 1 and a constant 1, and the labels."""
    with gzip.open(DATA, "rt") as file:
        numbers = np.loadtxt(file, delimiter=",")
    return np.hstack([numbers[:, :PIXELS] / 16, np.ones((len(numbers), 1))]), numbers[:, PIXELS].astype(int)


def probabilities(weights: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    scores = inputs @ weights
    powers: np.ndarray = np.exp(scores - scores.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def loss(weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(probabilities(weights, inputs)[np.arange(len(labels)), labels]).mean())


def main() -> None:
    place = int(sys.argv[1])
    inputs, labels = read_images()
    node = polyverso.init()  # the environment has the cluster's address and this worker's rank
    table = node.matrix(PIXELS + 1, DIGITS + PLACES, name="weights")
    print("ready", flush=True)
    for line in sys.stdin:
        images = np.arange(int(line) * BATCH, (int(line) + 1) * BATCH) % len(labels)
        errors = probabilities(table.get()[:, :DIGITS], inputs[images])
        errors[np.arange(BATCH), labels[images]] -= 1
        change = np.zeros((PIXELS + 1, DIGITS + PLACES))
        change[:, :DIGITS] = -RATE / BATCH * inputs[images].T @ errors
        change[:, DIGITS + place] = 1  # every row counts the steps of each worker
        table.add(change)
        print(line, end="", flush=True)
    node.shutdown()


if __name__ == "__main__":
    main()
