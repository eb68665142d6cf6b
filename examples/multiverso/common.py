"""What the examples in this folder share: the digits, this worker's part of them, and the report of a training."""

import argparse
import gzip
import json
import pathlib
import time
from collections.abc import Iterator

import multiverso as mv
import numpy as np
from polyverso import capi

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits.csv.gz"


def options(epochs: int) -> argparse.Namespace:
    """Reads --epochs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=epochs, help="passes over the images (default: %(default)s)")
    return parser.parse_args()


def digits(flat: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns (images, labels) of this worker for training, then all for testing: every fourth image. Images are
    float32 of 0 .. 1, of shape (count, 64), or (count, 1, 8, 8)."""
    with gzip.open(DATA, "rt") as file:
        numbers = np.loadtxt(file, delimiter=",", dtype="float32")
    images = numbers[:, :64] / 16
    images = images if flat else images.reshape(-1, 1, 8, 8)
    labels = numbers[:, 64].astype("int32")
    test = np.arange(len(numbers)) % 4 == 3
    train, own = ~test, slice(mv.worker_id(), None, mv.workers_num())
    return images[train][own], labels[train][own], images[test], labels[test]


def batches(images: np.ndarray, labels: np.ndarray, size: int, epoch: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The batches of one epoch, in a new order. Images that do not fill a batch are left out."""
    order = np.random.default_rng([epoch, mv.worker_id()]).permutation(len(labels))
    for first in range(0, len(order) - size + 1, size):
        chosen = order[first : first + size]
        yield images[chosen], labels[chosen]


class Report:
    """Prints a line of JSON for each epoch on the master worker; compare.py reads them."""

    def __init__(self) -> None:
        mv.barrier()  # workers need different times to compile their models
        self._begun = time.monotonic()

    def epoch(self, number: int, loss: float, error: float) -> None:
        """loss, error: of all images for testing."""
        if not mv.is_master_worker():
            return
        members = json.loads(capi.mv_status_text(0, capi.MV_JSON))["members"]
        sent = sum(member["sent_bytes"] or 0 for member in members)
        line = {"epoch": number, "loss": round(float(loss), 5), "error": round(float(error), 4),
                "seconds": round(time.monotonic() - self._begun, 3), "bytes": sent, "workers": mv.workers_num()}
        print(json.dumps(line), flush=True)
