"""Trains by train.py in several ways, and compares loss, error, time and bytes.

    python3 examples/torch/compare.py                           # two ranks
    python3 examples/torch/compare.py -n 4 --plot losses.svg

DDP with Gloo and with Polyverso as the backend of torch.distributed, started by `polyverso run` and, where it works, by
torchrun; then gradients as int8; then DiLoCo, which exchanges parameters every 50 steps.
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
# torchrun of PyTorch 1.13 does not start processes on Python 3.11.
PROBE = "from torch.distributed.elastic.multiprocessing.api import Std, to_map; to_map(Std.from_str('0'), 2)"


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
    print(f"{name:32} {last['loss']:8.4f} {last['error']:7.4f} {last['seconds']:8.2f} {last['bytes'] / 1e6:10.3f}", flush=True)
    return reports


def plot(runs: dict[str, list[dict[str, Any]]], path: str) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (by_step, by_bytes) = pyplot.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for place, (name, reports) in enumerate(runs.items()):
        losses, style = [report["loss"] for report in reports], (0, (4, 2 * (place % 3))) if place % 3 else "solid"
        by_step.plot([report["step"] for report in reports], losses, label=name, linestyle=style)
        by_bytes.plot([report["bytes"] / 1e6 for report in reports if report["bytes"]], [report["loss"] for report in reports if report["bytes"]],
                      label=name, linestyle=style)
    by_step.set(xlabel="step", ylabel="loss of the test set", yscale="log")
    by_bytes.set(xlabel="MB that a rank has passed to operations", yscale="log", xscale="log")
    by_step.legend()
    figure.savefig(path)
    print(f"the plot is in {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=2, metavar="N", help="ranks (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--plot", metavar="FILE", help="write a plot of the losses to FILE")
    arguments = parser.parse_args()
    ours = ["polyverso", "run", "-n", str(arguments.n), "--", sys.executable, TRAIN]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(arguments.n), TRAIN]
    ways = {
        "DDP, Gloo": [*ours, "--backend", "gloo"],
        "DDP, Polyverso": ours,
        "DDP, Polyverso, int8": [*ours, "--compress", "int8"],
        "DiLoCo, H = 50": [*ours, "--diloco", "50"],
    }
    if subprocess.run([sys.executable, "-c", PROBE], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        ways["DDP, Polyverso, by torchrun"] = torchrun
    print(f"{f'{arguments.n} ranks':32} {'loss':>8} {'error':>7} {'seconds':>8} {'MB':>10}")
    sizes = ["--steps", str(arguments.steps), "--hidden", str(arguments.hidden)]
    runs = {name: run(name, [*command, *sizes]) for name, command in ways.items()}
    if arguments.plot:
        plot(runs, arguments.plot)


main()
