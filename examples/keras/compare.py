"""Trains by train.py in several ways, and compares loss, error, time and bytes.

    python3 examples/keras/compare.py                           # two ranks
    python3 examples/keras/compare.py -n 4 --plot losses.svg
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

TRAIN = str(pathlib.Path(__file__).resolve().parent / "train.py")
WAYS = {"one process": None, "AllReduceCallback": "allreduce", "LocalSGDCallback, 10 steps": "local", "DiLoCoCallback, 50 steps": "diloco",
        "ServerCallback, 10 steps": "server", "ServerCallback, optimizer": "optimizer"}


def run(name: str, command: Sequence[str]) -> list[dict[str, Any]]:
    """The reports of a training."""
    reports: list[dict[str, Any]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ, OMP_NUM_THREADS="1")) as process:
        assert process.stdout
        for line in process.stdout:
            if '{"step"' in line:
                reports.append(json.loads(line[line.index("{"):]))
    if process.returncode != 0 or not reports:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}")
    last = reports[-1]
    sent = f"{last['bytes'] / 1e6:10.3f}" if last["bytes"] else f"{'-':>10}"
    print(f"{name:30} {last['loss']:8.4f} {last['error']:7.4f} {last['seconds']:8.2f} {sent}", flush=True)
    return reports


def plot(runs: dict[str, list[dict[str, Any]]], path: str) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.8), layout="constrained")
    for name, reports in runs.items():
        axes.plot([report["step"] for report in reports], [report["loss"] for report in reports], label=name)
    axes.set(xlabel="steps of a rank", ylabel="loss of the test set", yscale="log")
    axes.legend()
    figure.savefig(path)
    print(f"the plot is in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=2, metavar="N", help="ranks (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--plot", metavar="FILE", help="write a plot of the losses to FILE")
    arguments = parser.parse_args()
    print(f"{f'{arguments.n} ranks':30} {'loss':>8} {'error':>7} {'seconds':>8} {'MB':>10}")
    runs = {}
    for name, how in WAYS.items():
        several = [] if how is None else ["polyverso", "run", "-n", str(arguments.n), "--"]
        command = [*several, sys.executable, TRAIN, "--how", how or "allreduce", "--epochs", str(arguments.epochs)]
        runs[name] = run(name, command)
    if arguments.plot:
        plot(runs, arguments.plot)


main()
