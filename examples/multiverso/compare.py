"""Runs an example in one process and in several, and compares loss, error, time and bytes.

    python3 examples/multiverso/compare.py theano_logistic_regression.py            # 1 and 4 workers
    python3 examples/multiverso/compare.py keras_mlp.py -n 2 --plot losses.svg

With --launcher mpirun, Open MPI starts the workers instead of `polyverso run`.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
LAUNCHERS = {"polyverso": ["polyverso", "run", "-n"], "mpirun": ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np"]}


def train(script: str, workers: int, launcher: str, extra: Sequence[str]) -> list[dict[str, Any]]:
    """The epochs of a training, as the example reports them."""
    start = [] if workers == 1 else [*LAUNCHERS[launcher], str(workers), *(["--"] if launcher == "polyverso" else [])]
    # One thread per worker: matrix products would otherwise use the cores of the other workers.
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    command = [*start, sys.executable, str(HERE / script), *extra]
    epochs: list[dict[str, Any]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        for line in process.stdout:
            if '{"epoch"' in line:
                epochs.append(json.loads(line[line.index("{"):]))
                print(f"\r{workers} workers: epoch {len(epochs)}, loss {epochs[-1]['loss']}   ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if process.returncode != 0 or not epochs:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}")
    return epochs


def plot(runs: Sequence[list[dict[str, Any]]], script: str, path: str) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    for epochs in runs:
        workers = epochs[0]["workers"]
        axes.plot([epoch["epoch"] + 1 for epoch in epochs], [epoch["loss"] for epoch in epochs], marker="o",
                  label=f"{workers} worker{'s' if workers > 1 else ''}, {epochs[-1]['seconds']:.1f} s")
    axes.set(xlabel="epoch", ylabel="loss of the test set", title=script, yscale="log")
    axes.legend()
    figure.savefig(path)
    print(f"the plot is in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("script", help="an example of this folder")
    parser.add_argument("-n", type=int, default=4, metavar="N", help="workers (default: %(default)s)")
    parser.add_argument("--launcher", choices=LAUNCHERS, default="polyverso")
    parser.add_argument("--plot", metavar="FILE", help="write a plot of the losses to FILE")
    parser.add_argument("--epochs", type=int, help="passes over the data")
    arguments = parser.parse_args()
    extra = [] if arguments.epochs is None else ["--epochs", str(arguments.epochs)]
    runs = [train(arguments.script, workers, arguments.launcher, extra) for workers in (1, arguments.n)]
    print(f"{'workers':>7} {'loss':>9} {'error':>7} {'seconds':>8} {'MB sent':>8}")
    for epochs in runs:
        last = epochs[-1]
        print(f"{last['workers']:7} {last['loss']:9.4f} {last['error']:7.3f} {last['seconds']:8.2f} {last['bytes'] / 1e6:8.2f}")
    if arguments.plot:
        plot(runs, arguments.script, arguments.plot)


main()
