"""Training images: CIFAR-10 from either of its archives, otherwise this repository's digits."""

import gzip
import io
import pathlib
import pickle
import tarfile
from typing import Any

import numpy as np

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits.csv.gz"
SHAPE = (3, 32, 32)


class _Arrays(pickle.Unpickler):
    """Unpickles the arrays of the Python archive. Admits only the names that NumPy arrays need."""

    ALLOWED = {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}

    def find_class(self, module: str, name: str) -> Any:
        if (module.replace("_core", "core"), name) == ("numpy.core.multiarray", "_reconstruct"):
            return np.empty(0).__reduce__()[0]  # numpy's _reconstruct, whose module differs between NumPy versions
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a CIFAR-10 archive")
        return super().find_class(module, name)


def _read_pickle(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    batch = _Arrays(io.BytesIO(content), encoding="bytes").load()
    return batch[b"data"].reshape(-1, *SHAPE), np.array(batch[b"labels"], dtype=np.int64)


def _read_binary(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Each record is one byte for the label, then the image."""
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + int(np.prod(SHAPE)))
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0].astype(np.int64)


def read_cifar(archive: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Reads cifar-10-python.tar.gz or cifar-10-binary.tar.gz."""
    train: list[tuple[np.ndarray, np.ndarray]] = []
    test: list[tuple[np.ndarray, np.ndarray]] = []
    with tarfile.open(archive) as tar:
        for member in sorted(tar, key=lambda member: member.name):
            name = pathlib.PurePath(member.name)
            part = train if name.stem.startswith("data_batch") else test if name.stem == "test_batch" else None
            if part is not None:
                file = tar.extractfile(member)
                assert file
                content = file.read()
                part.append(_read_binary(content) if name.suffix == ".bin" else _read_pickle(content))
    if not train or not test:
        raise SystemExit(f"{archive} is not a CIFAR-10 archive (Python or binary): it has no data_batch_1 or no test_batch")
    images, labels, test_images, test_labels = (np.concatenate(column) for part in (train, test) for column in zip(*part))
    return images.astype(np.float32) / 128 - 1, labels, test_images.astype(np.float32) / 128 - 1, test_labels


def read_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    with gzip.open(DIGITS, "rt") as file:
        numbers = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images, labels = numbers[:, :64].reshape(-1, 1, 8, 8) / 8 - 1, numbers[:, 64].astype(np.int64)
    test = np.arange(len(labels)) % 4 == 3
    return images[~test], labels[~test], images[test], labels[test]


def read_images(archive: str | None) -> tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the name of the data, then (images, labels) for training and for testing."""
    return ("CIFAR-10", *read_cifar(archive)) if archive else ("the repository's digits", *read_digits())
