#!/usr/bin/env python3
"""Trains a classifier that tells the Old from the New Testament by the words of a verse, with a Perl and a Python
worker on one key-value table: once without L1 regularization, once with it. `make logreg` runs this script; to run it
manually, `source build/activate` first. The exit status is 0 only if both trainings learned something, and L1 left most
weights at zero at little cost.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import testaments

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "kjv"))

from jobs import Failure, find, shown  # noqa: E402: in the folder above
from verses import Missing  # noqa: E402

LIMIT_S = 100  # limit of one training
FINAL = re.compile(r"final accuracy ([\d.]+) auc ([\d.]+) loss ([\d.]+) stored (\d+) zero (\d+)")
EPOCH = re.compile(r"epoch \d+ loss ([\d.]+)")


class Result:
    """The result of one training, parsed from its output."""

    def __init__(self, text: str) -> None:
        final = FINAL.search(text)
        if final is None:
            raise Failure(f"training ended without a result:\n{text}")
        self.accuracy, self.auc, self.loss = map(float, final.groups()[:3])
        self.stored, self.zero = map(int, final.groups()[3:])
        self.losses = [float(loss) for loss in EPOCH.findall(text)]


def train(folder: pathlib.Path, l1: float) -> Result:
    workers = [[find("perl"), str(HERE / "train.pl")], [sys.executable, str(HERE / "train.py")]]
    line = [find("polyverso"), "run", "--servers", "1"]
    for at, worker in enumerate(workers):
        line += ["---" if at else "--", *worker, "--folder", str(folder), "--l1", str(l1)]
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, env=environment
        )
    except subprocess.TimeoutExpired:
        raise Failure(f"training takes more than {LIMIT_S} s") from None
    if done.returncode != 0:
        raise Failure(f"training ended with status {done.returncode}:\n{done.stdout}")
    return Result(done.stdout)


def draw(plain: Result, sparse: Result, path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (losses, weights) = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained", width_ratios=(2, 1))
    named = {"without L1": plain, "with L1": sparse}
    for name, result in named.items():
        losses.plot(range(1, len(result.losses) + 1), result.losses, marker=".", label=f"{name}: AUC {result.auc:.3f}")
    losses.set(xlabel="reports of both workers", ylabel="loss", title="Old or New Testament?")
    losses.grid(alpha=0.3)
    losses.legend()
    weights.bar(list(named), [result.stored - result.zero for result in named.values()], color=("C0", "C1"))
    weights.set(ylabel="weights that are not zero")
    figure.savefig(path, dpi=120)


def missed_targets(plain: Result, sparse: Result) -> Iterator[str]:
    for name, result in (("without L1", plain), ("with L1", sparse)):
        if result.auc < 0.94:
            yield f"{name}: the area under the curve is {result.auc:.4f}, wanted 0.94"
        if result.losses[-1] > 0.8 * result.losses[0]:
            yield f"{name}: the loss only went from {result.losses[0]:.4f} to {result.losses[-1]:.4f}"
    if sparse.auc < plain.auc - 0.02:
        yield f"L1 costs {plain.auc - sparse.auc:.4f} of the area under the curve"
    if sparse.zero < 0.5 * sparse.stored or sparse.zero < 2 * plain.zero:
        yield f"only {sparse.zero} of {sparse.stored} weights are zero with L1; {plain.zero} were without"


def demo(folder: pathlib.Path, verses: int | None) -> int:
    begun = time.monotonic()
    count, held_out = testaments.make(folder, 4, verses)
    print(f"{count:,} verses for training, {held_out:,} for testing; a Perl and a Python worker, one server", flush=True)
    results = {l1: train(folder, l1) for l1 in (0, 1)}
    print("   l1  accuracy    AUC    loss   weights stored    not zero")
    for l1, r in results.items():
        print(f"{l1:>5}{r.accuracy:10.4f}{r.auc:8.4f}{r.loss:8.4f}{r.stored:17,}{r.stored - r.zero:12,}", flush=True)
    missed = list(missed_targets(*results.values()))
    for sentence in missed:
        print(f"missed: {sentence}")
    plot = folder / "loss.png"
    draw(results[0], results[1], plot)
    print(f"logreg: auc={results[1].auc:.3f} seconds={time.monotonic() - begun:.1f} plot={shown(plot)}", flush=True)
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=testaments.FOLDER, help="folder for the files (build/logreg)")
    parser.add_argument("--smoke", action="store_true", help="quick check with a fifth of the verses")
    options = parser.parse_args()
    try:
        return demo(options.folder.resolve(), 6_000 if options.smoke else None)
    except (Failure, Missing) as failure:
        print(f"logreg: failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
