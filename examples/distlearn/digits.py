"""The model of mnist.py and mnist_ea.py: a network with one hidden layer, trained on data/digits.csv.gz."""

import argparse
import gzip
import pathlib

import numpy as np

Images = tuple[np.ndarray, np.ndarray]  # inputs and labels
Parameters = dict[str, list[np.ndarray]]  # weights and biases of each layer

PIXELS, HIDDEN, CLASSES = 64, 32, 10
DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits.csv.gz"


def load() -> list[Images]:
    """Returns (inputs, labels) for training, then for testing: every fourth image."""
    numbers = np.loadtxt(gzip.open(DATA, "rt"), delimiter=",")
    test = np.arange(len(numbers)) % 4 == 3
    return [(numbers[images, :PIXELS] / 16, numbers[images, PIXELS].astype(int)) for images in (~test, test)]


def share(images: Images, rank: int, ranks: int) -> Images:
    """The images of one rank. The shares are uneven: the last rank has nearly twice as many as the first."""
    weights = [ranks + 1 + other for other in range(ranks)]
    first, last = (len(images[1]) * sum(weights[:end]) // sum(weights) for end in (rank, rank + 1))
    return images[0][first:last], images[1][first:last]


def batches(images: Images, size: int, rank: int, epoch: int) -> list[Images]:
    """The batches of one epoch: the rank's images in a new order. Images that do not fill a batch are skipped."""
    order = np.random.default_rng([epoch, rank]).permutation(len(images[1]))
    chosen = (order[first : first + size] for first in range(0, len(order) - size + 1, size))
    return [(images[0][some], images[1][some]) for some in chosen]


def parameters() -> Parameters:
    """Initial parameters, the same on all ranks. Gradients have the same form."""
    random = np.random.default_rng(0)
    return {
        "hidden": [0.1 * random.standard_normal((PIXELS, HIDDEN)), np.zeros(HIDDEN)],
        "linear": [0.1 * random.standard_normal((HIDDEN, CLASSES)), np.zeros(CLASSES)],
    }


def predict(params: Parameters, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the class probabilities of each image, and the activations of the hidden layer."""
    hidden = np.tanh(inputs @ params["hidden"][0] + params["hidden"][1])
    scores = hidden @ params["linear"][0] + params["linear"][1]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True), hidden


def gradients(params: Parameters, inputs: np.ndarray, labels: np.ndarray) -> tuple[Parameters, np.ndarray]:
    """Returns the gradients of the mean cross entropy over a batch, and the predictions."""
    prediction, hidden = predict(params, inputs)
    errors = (prediction - np.eye(CLASSES)[labels]) / len(labels)
    back = (errors @ params["linear"][0].T) * (1 - hidden * hidden)
    return {"hidden": [inputs.T @ back, back.sum(axis=0)], "linear": [hidden.T @ errors, errors.sum(axis=0)]}, prediction


def descend(params: Parameters, grads: Parameters, rate: float) -> None:
    for layer, arrays in params.items():
        for array, gradient in zip(arrays, grads[layer]):
            array -= rate * gradient


def count(confusion: np.ndarray, prediction: np.ndarray, labels: np.ndarray) -> None:
    """Adds the predictions of a batch to confusion[label, guess]."""
    np.add.at(confusion, (labels, prediction.argmax(axis=1)), 1)


def right(confusion: np.ndarray) -> float:
    return float(confusion.trace() / max(1, confusion.sum()))


def accuracy(params: Parameters, images: Images) -> float:
    return float((predict(params, images[0])[0].argmax(axis=1) == images[1]).mean())


def loss(params: Parameters, images: Images) -> float:
    """The mean cross entropy."""
    return float(-np.log(predict(params, images[0])[0][np.arange(len(images[1])), images[1]]).mean())


def text(confusion: np.ndarray) -> str:
    lines = ["taken for   " + "    ".join(str(guess) for guess in range(CLASSES))]
    lines += [f"{label:8}  " + " ".join(f"{cell:4}" for cell in row) for label, row in enumerate(confusion)]
    return "\n".join(lines + [f" + global correct: {100 * right(confusion):.2f}%"])


def options(description: str, *more: tuple[str, type, float, str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--epochs", type=int, default=30, help="number of epochs")
    parser.add_argument("--batch", type=int, default=8, help="batch size of each rank")
    parser.add_argument("--rate", type=float, default=0.3, help="learning rate")
    parser.add_argument("--save", metavar="FOLDER", help="folder to write the parameters to, one number per line")
    for name, kind, default, meaning in more:
        parser.add_argument(name, type=kind, default=default, help=meaning)
    return parser.parse_args()


def save(folder: str | None, rank: int, params: Parameters) -> None:
    if folder:
        values = np.concatenate([array.ravel() for layer in sorted(params) for array in params[layer]])
        np.savetxt(pathlib.Path(folder) / f"parameters-{rank}.txt", values, fmt="%.17g")
