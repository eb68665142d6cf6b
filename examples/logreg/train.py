#!/usr/bin/env python3
"""Sparse logistic regression on libsvm files, by FTRL-Proximal on the servers: one worker, in Python with NumPy.
train.pl is equivalent, in plain Perl.

    polyverso run -n 2 --servers 1 -- python3 examples/logreg/train.py [--folder build/logreg] [--epochs 3] [--batch 200]
                                                                       [--alpha 0.1] [--l1 1] [--l2 0]

Lines are "label feature:value ...", as in libsvm; a feature may be any 64-bit integer. Each of n workers streams every
n-th of the folder's train*.svm. The weights are a key-value table: it stores only features that occurred, and L1 leaves
most of their weights at exactly zero. At the end, worker 0 predicts test.svm.
"""

import argparse
import itertools
import pathlib
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import polyverso


class Batch:
    """Some lines as one sparse matrix. `lines` has the index of the label of each value, `keys[columns]` the feature of
    each value."""

    def __init__(self, texts: Sequence[str]) -> None:
        labels: list[bool] = []
        lines: list[int] = []
        features: list[int] = []
        values: list[float] = []
        for text in texts:
            label, *pairs = text.replace(":", " ").split()
            lines += [len(labels)] * (len(pairs) // 2)
            labels.append(float(label) > 0)
            features += map(int, pairs[0::2])
            values += map(float, pairs[1::2])
        self.labels = np.array(labels, float)
        self.lines = np.array(lines, np.intp)
        self.values = np.array(values)
        self.keys, self.columns = np.unique(np.array(features, np.int64), return_inverse=True)

    def scores(self, weights: np.ndarray) -> np.ndarray:
        return np.bincount(self.lines, self.values * weights[self.columns], len(self.labels))

    def gradient(self, errors: np.ndarray) -> np.ndarray:
        """The gradient of the summed loss, for each key."""
        return np.bincount(self.columns, self.values * errors[self.lines], len(self.keys)).astype(np.float32)


def batches(path: pathlib.Path, size: int) -> Iterator[Batch]:
    with path.open(encoding="ascii") as file:
        while lines := list(itertools.islice(file, size)):
            yield Batch(lines)


def loss(scores: np.ndarray, labels: np.ndarray) -> float:
    """The sum of -log of the probability of each label."""
    return float(np.logaddexp(0, np.where(labels > 0, -scores, scores)).sum())


def area_under_curve(scores: np.ndarray, labels: np.ndarray) -> float:
    """The probability that a random example of label 1 scores higher than one of label 0."""
    order = np.argsort(scores)
    _, first, count = np.unique(scores[order], return_index=True, return_counts=True)
    ranks = np.repeat(first + (count - 1) / 2, count)  # equal scores share their mean rank
    ones = labels[order] > 0
    return float((ranks[ones].sum() - ones.sum() * (ones.sum() - 1) / 2) / (ones.sum() * (~ones).sum()))


def train(node: polyverso.Node, table: polyverso.Table, options: argparse.Namespace) -> None:
    mine = sorted(options.folder.glob("train*.svm"))[node.worker_id :: node.num_workers]
    begun = time.monotonic()
    for epoch in range(options.epochs):
        count, total = 0, 0.0
        for batch in itertools.chain.from_iterable(batches(path, options.batch) for path in mine):
            scores = batch.scores(table.get(keys=batch.keys))
            table.add(batch.gradient(1 / (1 + np.exp(-scores)) - batch.labels), keys=batch.keys, wait=False)
            count += len(scores)
            total += loss(scores, batch.labels)  # progressive loss: computed before this epoch learns from the lines
        if node.is_master:
            speed = (epoch + 1) * count / (time.monotonic() - begun)
            print(f"epoch {epoch} loss {total / max(count, 1):.4f} lines/s of this worker {speed:.0f}", flush=True)


def judge(table: polyverso.Table, options: argparse.Namespace) -> None:
    """Prints the quality of the weights on test.svm, and their number."""
    parts = []
    for batch in batches(options.folder / "test.svm", 1000):
        parts.append((batch.scores(table.peek(keys=batch.keys)), batch.labels))
    scores, labels = (np.concatenate(part) for part in zip(*parts))
    stored = zero = 0
    for keys, weights in table.scan():
        stored += len(keys)
        zero += int((weights == 0).sum())
    print(
        f"final accuracy {((scores > 0) == (labels > 0)).mean():.4f} auc {area_under_curve(scores, labels):.4f}"
        f" loss {loss(scores, labels) / len(labels):.4f} stored {stored} zero {zero}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = pathlib.Path(__file__).resolve().parents[2] / "build" / "logreg"
    parser.add_argument("--folder", type=pathlib.Path, default=default, help="folder with train*.svm and test.svm (build/logreg)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=200, help="batch size: lines between a get and an add")
    parser.add_argument("--alpha", type=float, default=0.1, help="learning rate")
    parser.add_argument("--l1", type=float, default=1.0, help="L1 regularization: a larger value leaves more weights at zero")
    parser.add_argument("--l2", type=float, default=0.0)
    options = parser.parse_args()
    if not (options.folder / "test.svm").exists():
        sys.exit(f"train.py: there is no test.svm in {options.folder}: run testaments.py first")
    with polyverso.init() as node:
        updater = f"ftrl alpha={options.alpha:g} l1={options.l1:g} l2={options.l2:g}"
        table = node.keyvalue(1, name="weights", updater=updater)
        train(node, table, options)
        node.barrier()  # afterwards the table has all gradients of all workers
        if node.is_master:
            judge(table, options)


if __name__ == "__main__":
    main()
